"""What is said while a plan is carried out: changes overlap, their lines do not."""

from collections.abc import Callable, Mapping, Sequence

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.views.apply_text import event_line

__all__ = ["DONE", "Telling"]

# a change is done, and nothing of it half done
DONE = frozenset(
    {Step.LAUNCHED, Step.ADOPTED, Step.UPDATED, Step.FORGOTTEN, Step.DESTROYED, Step.FAILED}
)


class Telling:
    """Give it the events as they come; it holds back what a change says until those that were
    begun before it are done. `waits_for` names the older attempts that a launch waits for."""

    def __init__(
        self, waits_for: Mapping[Address, Sequence[AttemptRef]], say: Callable[[str], None]
    ) -> None:
        self._waits_for = waits_for
        self._say = say
        self._begun: dict[Address, list[str]] = {}
        self._done: set[Address] = set()

    def hear(self, event: ApplyEvent) -> None:
        if event.step is Step.STARTED:
            self._begun[event.address] = []
            return
        line = event_line(event, waits_for=self._waits_for.get(event.address, ()))
        if line is None:
            return
        if event.address not in self._begun:
            self._say(line)
            return
        self._begun[event.address].append(line)
        if event.step in DONE:
            self._done.add(event.address)
        while self._begun and next(iter(self._begun)) in self._done:
            self._release(next(iter(self._begun)))

    def release(self) -> None:
        """Say what is held back: the walk ends early."""
        for address in list(self._begun):
            self._release(address)

    def _release(self, address: Address) -> None:
        for line in self._begun.pop(address):
            self._say(line)
