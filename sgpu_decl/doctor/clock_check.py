"""The clock of this machine, against times that were written here."""

import ctypes
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import sgpu_decl
from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.doctor_finding import Finding, ok, warn
from sgpu_decl.model.state import State

_CHECK = "clock"
_TOLERATED = 60.0  # seconds
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of <sys/timex.h>
_STATUS = slice(40, 44)  # of `struct timex`, where `long` has 8 bytes
_TIMEX = 512  # bytes, more than the structure has


def check_clock(states: tuple[State, ...]) -> Iterator[Finding]:
    """Recorded times lie in the past. If the clock is behind them, it is slow."""
    now = time.time()
    newest, source = max(_known_past(states))
    if newest > now + _TOLERATED:
        yield warn(
            _CHECK,
            f"the clock is at least {duration(newest - now)} slow: {source} is of "
            f"{datetime.fromtimestamp(newest).astimezone():%Y-%m-%d %H:%M}",
            "set it, for instance with `sudo timedatectl set-ntp true`: certificates, tokens and "
            "the order of attempts depend on it",
        )
        return
    yield ok(_CHECK, f"the clock is later than all recorded times; {_synchronisation()}")


def _known_past(states: tuple[State, ...]) -> Iterator[tuple[float, str]]:
    yield Path(sgpu_decl.__file__).stat().st_mtime, "the installation of sgpu"
    for state in states:
        for resource in state.resources.values():
            last = resource.last
            if last is not None:
                moment = last.ended_at or last.started_at or last.created_at
                yield moment.timestamp(), f"`{last.ref}`"


def _synchronisation() -> str:
    """What the kernel says about NTP, by adjtimex(2), which changes nothing with `modes` 0."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    answer = ctypes.create_string_buffer(_TIMEX)
    if sys.platform != "linux" or adjtimex is None or adjtimex(answer) < 0:
        return "whether NTP keeps it is not known"
    status = int.from_bytes(answer.raw[_STATUS], sys.byteorder)
    return "NTP does not keep it" if status & _UNSYNCHRONISED else "NTP keeps it"
