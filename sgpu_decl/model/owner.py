"""Who needs what the stores of code and environments hold."""

from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass


class Presence(StrEnum):
    """Whether something is still where it was. `UNKNOWN` where nobody can be asked."""

    PRESENT = "present"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A state, or a file such as a saved plan.

    A state has a `lineage`, and a `store`: the URL by which the store that keeps it is found again.
    Both are None for a file. `path` is the file that keeps it, None where it is no file.
    """

    path: str | None
    lineage: str | None = None
    store: str | None = None
