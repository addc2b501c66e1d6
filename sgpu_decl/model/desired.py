"""What the user wants, and the facts that were gathered about it before planning."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Protocol

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.environment import DesiredEnvironment, PackageList
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.ray_size import RaySize


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """The resource at `address` was at `before`. Both stand for all cells of a matrix. `place` is
    where the file says so."""

    address: Address
    before: Address
    place: Place | None = None


NO_PLACES: Mapping[str, Place] = MappingProxyType({})


class LaunchRoom(Protocol):
    """What launches share on a backend, whatever their placements. It is a value: two that are
    equal are the same room.

    Attributes:
        name: what people call it.
        limit: how many launches the backend can hold, those that wait included; None for any
            number.
        beyond: what a plan says of more.
    """

    @property
    def name(self) -> str: ...

    @property
    def limit(self) -> int | None: ...

    @property
    def beyond(self) -> Diagnostic | None: ...

    def fitting(self, launches: Mapping[str, int]) -> int | None:
        """How many launches find room at the same time now; None where that is not known.

        Args:
            launches: how many there are of each placement, by its `id`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a backend puts a run, decided when it is planned.

    `id` is what the backend launches with, if anything. `note` is what the plan says of it. `field`
    is the field of the run that decided it, None where something else did. `room` is what it shares
    with other launches; None where the backend does not say.
    """

    id: str | None
    note: Diagnostic
    field: str | None = None
    room: LaunchRoom | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFacts:
    """The code of a run by content. `digest` names its manifest in the store; `files` and `bytes`
    count what is in it; `left_out` lists secrets that were found and not taken; `changed` the paths
    that differ from the code of the last attempt and count. `counted` is what counts, as the record
    of a launch keeps it. `same` are the digests of code launched earlier that differs in nothing
    that counts, each with what the record says of that."""

    digest: str
    files: int
    bytes: int
    left_out: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    counted: str | None = None
    same: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The Python that ranks use where no environment is declared: shown, never compared. `version`
    and `packages` are None where only asking it would tell."""

    executable: str
    version: str | None
    packages: PackageList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRun:
    """One declared run.

    `spec` is its validated config without defaults and without the keys that only shape planning
    (`matrix`, `targets`, `variables`, `name`). `places` maps a dotted field path to where the user
    wrote it. `owner` is the file that declares it, relative to the project. `cell` is the place of
    a cell in its matrix. `environment` is the declared one; `interpreter` is set where Python runs
    the user's code and none is declared. `placement` is set where the backend has something to
    choose. `resumes` is set for a run with `resume`. `ray` is the Ray cluster that it would get.
    `jobs` launch it, in the place of `apply`. `after` are the names of the runs that come first,
    and `site` is the place of its attempts, where its backend has several.
    """

    address: Address
    backend: str
    owner: str
    spec: Spec
    cell: str | None = None
    until: str
    on_active: str
    prevent_destroy: bool = False
    ignore_changes: tuple[str, ...] = ()
    code: CodeFacts | None = None
    environment: DesiredEnvironment | None = None
    interpreter: Interpreter | None = None
    placement: Placement | None = None
    resumes: bool = False
    ray: RaySize | None = None
    jobs: tuple[Address, ...] = ()
    after: tuple[str, ...] = ()
    site: str = ""
    places: Mapping[str, Place] = field(
        default_factory=lambda: NO_PLACES, compare=False, hash=False
    )
    findings: tuple[Diagnostic, ...] = ()

    @property
    def code_digest(self) -> str | None:
        return self.code.digest if self.code else None

    def has_code(self, code_digest: str | None) -> bool:
        """Whether its code is that one, or differs in nothing that counts."""
        if code_digest == self.code_digest:
            return True
        return self.code is not None and any(one == code_digest for one, _ in self.code.same)

    @property
    def environment_digest(self) -> str | None:
        return self.environment.digest if self.environment else None

    @property
    def packages(self) -> PackageList | None:
        """The packages that ranks find, as far as that is known."""
        if self.environment is not None:
            return self.environment.packages
        return self.interpreter.packages if self.interpreter else None

    def launch_inputs(self, spec: Spec, fingerprint: str) -> LaunchInputs:
        """What decides its launch, by itself or as a part of a job with that spec."""
        return LaunchInputs(
            spec=spec,
            fingerprint=fingerprint,
            code_digest=self.code_digest,
            environment_digest=self.environment_digest,
            packages_digest=self.packages.digest if self.packages else None,
            placement=self.placement.id if self.placement else None,
            cell=self.cell,
            counted=self.code.counted if self.code else None,
        )
