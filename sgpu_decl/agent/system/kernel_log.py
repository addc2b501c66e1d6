"""The log of the kernel, where this user may read it and it has the pids that this process sees."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FIRST_PID_NAMESPACE = 4_026_531_836  # PROC_PID_INIT_INO: pids here are those of the kernel's log
_NVIDIA = b"NVRM: Xid "
_CLEANUP = b"): 45, "  # Xid 45 follows other errors


def kernel_records() -> list[bytes] | None:
    """Return the records of the log, oldest first, such as `6,1012,8412,-;text`, in which the third
    number is the time since boot in µs; None if the log cannot be read, or has other pids."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
            return None
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    records = []
    try:
        while True:
            try:
                records.append(os.read(log, 8192))
            except BrokenPipeError:
                continue  # this record was overwritten; the next one is there
    except BlockingIOError:
        return records  # the end of the log
    except OSError:
        return None
    finally:
        os.close(log)


def gpu_error(records: Iterable[bytes], pid: int, since_ns: int) -> str:
    """Return what NVIDIA's driver said first about a process that started at `since_ns` (monotonic
    time); empty if it said nothing. Example: `NVRM: Xid (PCI:0000:dc:00): 79, pid=18, name=a, ...`.
    """
    found = b""
    for record in records:
        head, _, text = record.partition(b";")
        if _NVIDIA in text and b"pid=%d," % pid in text and _since(head, since_ns):
            line = text.partition(b"\n")[0]
            if _CLEANUP not in line:
                return line.decode("utf-8", "replace")
            found = found or line
    return found.decode("utf-8", "replace")


def _since(head: bytes, since_ns: int) -> bool:
    numbers = head.split(b",")
    return len(numbers) > 2 and numbers[2].isdigit() and int(numbers[2]) * 1000 >= since_ns
