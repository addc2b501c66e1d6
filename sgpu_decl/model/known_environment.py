"""One environment as `sgpu env` shows and compares it, wherever it is known from."""

from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.environment import Package

__all__ = ["Environment", "EnvironmentKind"]


class EnvironmentKind(StrEnum):
    BASE = "base"
    INTERPRETER = "interpreter"
    LOCK = "lock"
    SNAPSHOT = "snapshot"
    ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`packages` is sorted by name; it is not `complete` where more may be installed, and `absent`
    are names of which it is known that they are not. What is unknown is `None`.

    `hashed` says of a lock whether every package has a hash; `size` and `files` count what a staged
    one holds.
    """

    name: str
    kind: EnvironmentKind
    packages: tuple[Package, ...]
    complete: bool = True
    absent: tuple[str, ...] = ()
    python: str | None = None
    cuda: str | None = None
    os: str | None = None
    digest: str | None = None
    hashed: bool | None = None
    size: int | None = None
    files: int | None = None
    notes: tuple[str, ...] = ()
