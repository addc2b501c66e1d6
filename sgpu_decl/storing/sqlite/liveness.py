"""Whether the process that took the state lock can still be alive."""

import os
from pathlib import Path

from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """The identity of one process. A pid alone is not enough, since it is used again.

    `boot` names the boot and the pid namespace (containers of one host share a boot, not their
    pids), `started` when in that boot the process began; both are `None` where the system does not
    say.
    """

    host: str
    pid: int
    boot: str | None
    started: str | None


def mark_of_this_process() -> ProcessMark:
    pid = os.getpid()
    return ProcessMark(host=os.uname().nodename, pid=pid, boot=_boot(), started=_started(pid))


def provably_dead(holder: ProcessMark) -> bool:
    """True only when nothing else is possible: on another host nothing can be known."""
    if holder.host != os.uname().nodename:
        return False
    boot = _boot()
    if holder.boot is not None and boot is not None and holder.boot != boot:
        return holder.boot.partition("/")[0] != boot.partition("/")[0]
    if not _exists(holder.pid):
        return True
    started = _started(holder.pid)
    return holder.started is not None and started is not None and started != holder.started


def provably_dead_here(holder: ProcessMark) -> bool:
    """As `provably_dead`, where a holder may be on another machine of the same name: only the same
    boot of the same kernel, and the same pid namespace, tell that it was here."""
    return holder.boot is not None and holder.boot == _boot() and provably_dead(holder)


def _boot() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """The start time in clock ticks since boot; a zombie counts as no process."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name stands in parentheses and may hold spaces and parentheses itself.
    fields = line[line.rindex(b")") + 2 :].split()
    return "zombie" if fields[0] in {b"Z", b"X"} else fields[19].decode()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
