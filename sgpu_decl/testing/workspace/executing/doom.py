"""What is to befall a run of which somebody wants to see the consequences."""

from dataclasses import dataclass

from sgpu_decl.testing.workspace.executing.endings import AttemptEnding
from sgpu_decl.testing.workspace.executing.gang import NodeDeath

__all__ = ["Doom", "Misnomer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Misnomer:
    """The platform says `ending` of a failure, with `message`, whatever it was. With `at_once` it
    fails before it gets any nodes."""

    ending: AttemptEnding
    message: str
    at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Doom:
    """What befalls the next run of a tenant: in that attempt (`None`: in each) a node vanishes, or
    a failure gets another name."""

    attempt: int | None
    death: NodeDeath | None = None
    misnomer: Misnomer | None = None

    def befalls(self, attempt: int) -> bool:
        return self.attempt in (None, attempt)
