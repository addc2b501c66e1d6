"""The meaning of Ctrl-C while a run is followed.

On a terminal: the first announces that the viewer leaves in five seconds, a second one within them
cancels the run and waits for it, a third leaves at once. Off a terminal, and for SIGTERM anywhere,
one signal leaves. The run itself goes on in all cases but the second. SIGHUP keeps its default: the
viewer ends with its terminal.
"""

import signal
from enum import StrEnum
from types import FrameType
from typing import Self

PATIENCE = 5.0


class InterruptDecision(StrEnum):
    GO_ON = "go_on"
    ANNOUNCE = "announce"
    DETACH = "detach"
    CANCEL = "cancel"
    LEAVE = "leave"


class Interrupts:
    """The state machine, without signals and clock. Each signal is answered by one decision."""

    def __init__(self, *, interactive: bool, patience: float = PATIENCE) -> None:
        self._interactive = interactive
        self._patience = patience
        self._answered = 0
        self._deadline: float | None = None

    @property
    def cancelling(self) -> bool:
        return self._answered >= 2

    def decide(self, *, presses: int, terminated: bool, now: float) -> InterruptDecision:
        """`presses` counts the SIGINTs so far, `terminated` says that a SIGTERM came, `now` is a
        monotonic clock in seconds."""
        if terminated or (presses and not self._interactive):
            return InterruptDecision.DETACH
        if presses >= 3:
            return InterruptDecision.LEAVE
        if presses == 2 and self._answered < 2:
            self._answered, self._deadline = 2, None
            return InterruptDecision.CANCEL
        if presses == 1 and self._answered == 0:
            self._answered, self._deadline = 1, now + self._patience
            return InterruptDecision.ANNOUNCE
        if self._deadline is not None and now >= self._deadline:
            return InterruptDecision.DETACH
        return InterruptDecision.GO_ON


class Signals:
    """Counts SIGINT and notes SIGTERM inside a `with`, so that nothing is cut off half-way."""

    def __init__(self) -> None:
        self.presses = 0
        self.terminated = False
        self._before: list[tuple[int, signal._HANDLER]] = []

    @property
    def any(self) -> bool:
        return self.terminated or self.presses > 0

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.append((number, signal.signal(number, self._note)))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signal module's signature
        if number == signal.SIGTERM:
            self.terminated = True
        else:
            self.presses += 1
