"""Measures how the platform ends a command: whether SIGTERM comes, and how much later SIGKILL."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.system.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.probe.probe_report import ProbeRecord

__all__ = ["Sigterm", "hold"]

_BEAT = 0.5  # seconds


class Sigterm:
    """Notes the first SIGTERM, and does not end by it. `at` is its monotonic time."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._wakeup, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGTERM, self._on_signal)

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until it comes."""
        import select

        if select.select([self._wakeup], [], [], seconds)[0]:
            os.read(self._wakeup, 64)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.at is None:
            self.at = time.monotonic()
        os.write(self._wake, b"!")


def hold(record: ProbeRecord, seconds: float, sigterm: Sigterm) -> None:
    """Go on for so long, and write an `alive` record twice a second. SIGTERM is only noted, so the
    last of these records shows when SIGKILL came."""
    start = time.monotonic()
    record.say("holding", {})
    noted = False
    while (now := time.monotonic()) - start < seconds:
        term = sigterm.at
        if term is not None and not noted:
            noted = True
            record.say("asked", {"after": round(term - start, 2)})
        since = {} if term is None else {"since_asked": round(now - term, 2)}
        record.say("alive", {"for": round(now - start, 2), **since})
        sigterm.wait(_BEAT)
