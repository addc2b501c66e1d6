"""Python environments: as plans and states speak of them, packages by name and version; and as
`sgpu env` shows and compares them, wherever they are known from."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.frozen_dataclass import UNWRITTEN, dataclass, written_as
from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import Spec, canonical, digest


class Package(NamedTuple):
    """A distribution: `name` is normalised (PEP 503), `version` as its metadata has it."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class PackageList:
    """The packages of one environment as canonical JSON, and the digest of that text: what many
    attempts share is kept once and parsed where it differs."""

    text: str
    digest: str

    @classmethod
    def of(cls, packages: Iterable[Package]) -> "PackageList":
        text = canonical([[package.name, package.version] for package in sorted(set(packages))])
        return cls(text, digest(text))

    @classmethod
    def from_text(cls, text: str) -> "PackageList":
        """Read what `of` made.

        Raises:
            ValueError: it is no list of packages.
        """
        made = cls(text, digest(text))
        if cls.of(made.packages) != made:
            raise ValueError("not the canonical text of a list of packages")
        return made

    @property
    def packages(self) -> tuple[Package, ...]:
        return tuple(Package(str(name), str(version)) for name, version in json.loads(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredEnvironment:
    """One declared environment, as it would be now.

    `digest` identifies it; `spec` is what it takes to make it again: how it is declared, the lock
    that was resolved, the interpreter. `bytes` counts all of its files, `bytes_to_stage` those that
    the store lacks; both are None while it was never built.
    """

    address: Address
    backend: str
    owner: str
    digest: str
    spec: Spec
    packages: PackageList
    bytes: int | None = None
    bytes_to_stage: int | None = None
    findings: tuple[Diagnostic, ...] = ()


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
