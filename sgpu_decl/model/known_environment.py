"""One environment as `sgpu env` shows and compares it, wherever it is known from."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sgpu_decl.frozen_dataclass import UNWRITTEN, dataclass, written_as
from sgpu_decl.model.environment import Package


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
    packages: tuple[Package, ...] = field(metadata=UNWRITTEN)
    complete: bool = True
    absent: tuple[str, ...] = ()
    python: str | None = None
    cuda: str | None = None
    os: str | None = None
    digest: str | None = None
    hashed: bool | None = None
    size: int | None = field(default=None, metadata=written_as("bytes"))
    files: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSource:
    """The page that describes a base, as of a day (`2025-10-22`)."""

    title: str
    url: str
    as_of: str
    note: str = field(metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base environment of a backend.

    Attributes:
        platform: the platform's names for it, by the platform's words.
        selector: its name in a launch there.
        facts: further facts by name.
        spelled: normalised package names to the platform's spelling.
        left_out: the packages that no index has, with the reason.
    """

    title: str
    platform: Mapping[str, str | None]
    selector: str
    released: str | None
    facts: Mapping[str, str | None]
    source: BaseSource
    environment: Environment
    spelled: Mapping[str, str]
    left_out: dict[str, str]

    @property
    def name(self) -> str:
        return self.environment.name
