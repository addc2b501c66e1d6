"""How the platform ends a command: whether SIGTERM comes, and how much later SIGKILL."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.probe.probe_report import ProbeRecord

__all__ = ["Sigterm", "hold"]

_BEAT = 0.5  # seconds


class Sigterm:
    """Notes SIGTERM from now on, and does not end by it. `at` is when it came first, by the
    monotonic clock."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGTERM, self._heard)

    def wait(self, seconds: float) -> None:
        """Wait for that long, or until it comes."""
        import select

        if select.select([self._woken], [], [], seconds)[0]:
            os.read(self._woken, 64)

    def _heard(self, _number: int, _frame: object) -> None:
        if self.at is None:
            self.at = time.monotonic()
        os.write(self._wake, b"!")


def hold(record: ProbeRecord, seconds: float, sigterm: Sigterm) -> None:
    """Go on for that long, and write an `alive` record twice a second. SIGTERM is only noted, so
    the last of these records shows when SIGKILL came."""
    began = time.monotonic()
    record.say("holding", {})
    told = False
    while (now := time.monotonic()) - began < seconds:
        asked = sigterm.at
        if asked is not None and not told:
            told = True
            record.say("asked", {"after": round(asked - began, 2)})
        since = {} if asked is None else {"since_asked": round(now - asked, 2)}
        record.say("alive", {"for": round(now - began, 2), **since})
        sigterm.wait(_BEAT)
