"""Python environments as plans and states speak of them: packages by name and version."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.canonical_spec import Spec
from sgpu_decl.model.jsonable import canonical, digest


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
