"""What a rank is doing, for the monitor of its node: its collectives, and where its main thread is.

A rank that joins a process group listens at a socket. It answers there from a thread of its own,
which costs nothing while nobody asks. The collectives are those of torch's flight recorder, as
`torch._C._distributed_c10d._dump_fr_trace` gives them for all backends, or `_dump_nccl_trace` in
older versions for NCCL (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html).
Of them, an answer has the last ones of each group, and no stacks: torch 2.13 imports its compiler
(`torch._inductor`) before it names their frames, which takes seconds.

A request is `?` for the main thread and how many collectives there were, or `*` for the collectives
themselves, too. An answer is a line of JSON:

    stack     [[function, file, line], ...], the innermost frame first; without our own
    marks     what changes with each collective that is entered or completed
    groups    [{name, ranks, last: [{number, call, sizes, elements, types,
              pending}, ...]}, ...]
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock
    from types import ModuleType
    from typing import Any

_LAST = 10  # collectives of a group
_MOST_GROUPS = 16
_MOST_FRAMES = 30
_LONGEST = 300  # characters of a name
_MOST_RECORDED = 20_000  # of a longer record, each copy takes a second and more
_PATIENCE = 2.0  # seconds for one who asks
_LONGEST_ANSWER = 10.0  # seconds that an exit waits for
_SIZES = 8  # tensors of a collective, and dimensions of a tensor, that are told
_SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def answer_monitor(module: "ModuleType", address: str) -> None:
    """Listen at `address` once this rank joins a process group. No folder holds that name (unix(7),
    "abstract"), so its length is known and nothing is left.

    Args:
        module: `torch.distributed.rendezvous`, once it is imported.
    """
    begun: list[bool] = []

    def joining(make: "Callable[..., Any]") -> "Callable[..., Any]":
        def store(*args: "Any", **options: "Any") -> "Any":
            if not begun:
                begun.append(True)
                _begin(address)
            return make(*args, **options)

        return store

    for name in ("TCPStore", "FileStore"):
        make = getattr(module, name, None)
        if make is not None:
            setattr(module, name, joining(make))


def _begin(address: str) -> None:
    """Start the thread. Where that is not possible, the run goes on without it.

    At its exit, Python ends a thread where it next takes the interpreter's lock. In torch's own
    code that aborts the program, so the exit waits for an answer that is being made, and prevents
    another one (https://docs.python.org/3/c-api/init.html#c.PyEval_RestoreThread).
    """
    import atexit
    import socket
    import threading

    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.settimeout(None)  # whatever the program set for all sockets
        listening.bind(address)
        listening.listen(8)
        main, answering = threading.main_thread().ident, threading.Lock()
        arguments = (listening, main, answering)
        threading.Thread(target=_serve, args=arguments, name="sgpu", daemon=True).start()
        atexit.register(answering.acquire, timeout=_LONGEST_ANSWER)
        # A process that the program forks has no such thread, and may have a copy of a taken lock.
        os.register_at_fork(after_in_child=lambda: atexit.unregister(answering.acquire))
    except (OSError, RuntimeError):
        listening.close()


def _serve(listening: "Any", main: int, answering: "Lock") -> None:
    import struct
    from socket import SO_PEERCRED, SOL_SOCKET
    from time import sleep

    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            sleep(1.0)  # no descriptor is left
            continue
        with connection:
            try:
                connection.settimeout(_PATIENCE)
                credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, struct.calcsize("3i"))
                if struct.unpack("3i", credentials)[1] in (0, os.geteuid()):
                    request = connection.recv(1)
                    with answering:
                        answer = _answer(main, everything=request == b"*")
                    connection.sendall(answer)
            except Exception:  # noqa: BLE001, S112  torch may be of any version
                continue


def _answer(main: int, *, everything: bool) -> bytes:
    from json import dumps

    marks, groups = [], None
    library: Any = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(library, "_dump_fr_trace", None) or getattr(library, "_dump_nccl_trace", None)
    if dump is not None and _recorded() > 0:
        from pickle import loads

        details = everything and _recorded() <= _MOST_RECORDED
        trace = loads(dump(details, False, False))  # noqa: FBT003  torch has just written it
        marks = sorted((name, *map(str, one.values())) for name, one in trace["pg_status"].items())
        groups = _groups(trace["entries"]) if details else None
    answer = {"stack": _stack(main), "marks": marks, "groups": groups}
    return dumps(answer).encode() + b"\n"


def _recorded() -> int:
    """How many collectives torch keeps at most."""
    for name in _SIZE_VARIABLES:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0


def _stack(main: int) -> "list[list[object]]":
    own = os.path.dirname(_stack.__code__.co_filename)
    frame = sys._current_frames().get(main)
    stack: list[list[object]] = []
    while frame is not None and len(stack) < _MOST_FRAMES:
        code = frame.f_code
        if os.path.dirname(code.co_filename) != own:
            name = getattr(code, "co_qualname", code.co_name)  # Python 3.11
            stack.append([name[:_LONGEST], code.co_filename[-_LONGEST:], frame.f_lineno or 0])
        frame = frame.f_back
    return stack


def _groups(entries: "list[dict[str, Any]]") -> "list[dict[str, object]]":
    from math import prod

    members = _members()
    last: dict[str, list[dict[str, object]]] = {}
    for entry in entries:
        if entry.get("is_p2p"):
            continue
        name = str(entry["process_group"][0])
        one = {
            "number": entry["collective_seq_id"],
            "call": str(entry["profiling_name"]).rpartition(":")[2].lstrip("_")[:_LONGEST],
            "sizes": [size[:_SIZES] for size in entry["input_sizes"][:_SIZES]],
            "elements": sum(map(prod, entry["input_sizes"])),
            "types": [str(one) for one in entry["input_dtypes"][:_SIZES]],
            "pending": not entry["retired"] and entry["state"] != "completed",
        }
        known = last.setdefault(name, [])
        known.append(one)
        del known[:-_LAST]
    return [
        {"name": name, "ranks": members.get(name, []), "last": some}
        for name, some in list(last.items())[-_MOST_GROUPS:]
    ]


def _members() -> "dict[str, list[int]]":
    """The ranks of each group, by its name. The record has them for NCCL alone."""
    module: Any = sys.modules["torch.distributed.distributed_c10d"]
    world = module._world
    ranks = world.pg_group_ranks
    return {str(name): sorted(ranks.get(group, ())) for group, name in world.pg_names.items()}
