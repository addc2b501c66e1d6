"""What a run or project file says, once it was read and validated."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.target import Mode

if TYPE_CHECKING:
    from sgpu_decl.config.job import Job
    from sgpu_decl.config.run import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One run, or one cell of a matrix.

    Attributes:
        config: without the matrix; `args` holds the cell's values.
        places: where the user wrote each field, by its dotted path.
        spec: the config without defaults, its name and the matrix.
    """

    address: Address
    config: "RunConfig"
    places: Mapping[str, Place] = field(compare=False)
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """One job of a project.

    Attributes:
        places: where the user wrote each field, by its dotted path.
        place: where the job is named.
        spec: the config without defaults.
    """

    address: Address
    config: "Job"
    places: Mapping[str, Place] = field(compare=False)
    place: Place = field(compare=False)
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that one file and the files that it includes say.

    Attributes:
        runs: in the order of the file, the cells of a matrix in theirs.
        jobs: those of a project, in the order of the file.
        mode: what the target is for.
        production: whether the file says `mode: production`, which is the default, too.
        config_digest: of all addresses and specs: the same while nothing that matters changed.
        targets: the names of all targets in the file.
        included: the files that it includes, from its folder.
        removed: what the project lets go, neither cancelled nor deleted.
        keep_warm: of a called function: seconds that what its ranks import stays imported.
    """

    kind: Literal["run", "project"]
    file: str
    project_name: str | None
    target: str | None
    runs: tuple[LoadedRun, ...]
    config_digest: str
    jobs: tuple[LoadedJob, ...] = ()
    mode: Mode = Mode.PRODUCTION
    production: bool = False
    targets: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    removed: tuple[Address, ...] = ()
    keep_warm: float = 0.0
