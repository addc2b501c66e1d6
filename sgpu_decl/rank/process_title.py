"""The name under which `ps`, `top` and `nvidia-smi` show a rank.

They show what a process has written over its arguments (proc(5): `/proc/pid/cmdline`, and
`arg_start` and `arg_end` in `/proc/pid/stat`), or the name of its main thread. Workers of Ray are
seen in `nvidia-smi` that way (https://github.com/ray-project/ray/issues/40529). Where the kernel
allows neither, the rank keeps the name that it was started with.
"""

import os

_ARGUMENTS = slice(45, 47)  # arg_start and arg_end, counted from the field after the name
_LONGEST_NAME = 15  # bytes of the name of a thread


def show_as_rank(rank: str) -> None:
    """Be `sgpu: train#8 rank 3` for others. The room is that of the arguments, so a long name of a
    run loses its end."""
    run = os.environ.get("SGPU_ADDRESS", "").partition(".")[2].encode()
    end = f"#{os.environ.get('SGPU_ATTEMPT', '')} rank {rank}".encode()
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        first, last = map(int, fields[_ARGUMENTS])
        room = last - first
        if first and room > len(end) + len(b"sgpu: "):
            title = b"sgpu: " + _shortened(run, end, room - len(b"sgpu: \0"))
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(first)
                memory.write(title.ljust(room, b"\0"))
        with open("/proc/self/comm", "wb", buffering=0) as name:
            name.write(_shortened(run, end, _LONGEST_NAME))
    except (OSError, ValueError):
        return


def _shortened(run: bytes, end: bytes, room: int) -> bytes:
    return run[: max(room - len(end), 0)] + end[:room]
