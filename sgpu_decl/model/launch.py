"""A launch: why there is one, what decides it, and what is remembered of it."""

from dataclasses import field
from enum import StrEnum
from pathlib import Path

from sgpu_decl.frozen_dataclass import FLAT, SOMETIMES, dataclass, written_as
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Spec


class Reason(StrEnum):
    """A closed list, in order of precedence: the first that holds is given."""

    REQUESTED_RERUN = "requested_rerun"
    REMOVED_FROM_CONFIG = "removed_from_config"
    ALREADY_RUNNING = "already_running"
    PREVIOUS_LOST = "previous_lost"
    PREVIOUS_FAILED = "previous_failed"
    FIRST_RUN = "first_run"
    CONFIG_CHANGED = "config_changed"
    CODE_CHANGED = "code_changed"
    ENVIRONMENT_CHANGED = "environment_changed"
    LIVE_DRIFTED = "live_drifted"
    FAILED_NOT_RETRIED = "failed_not_retried"
    CANCELLED_BY_USER = "cancelled_by_user"
    UPSTREAM_FAILED = "upstream_failed"
    UP_TO_DATE = "up_to_date"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInputs:
    """What decides a launch: equal inputs, equal launch.

    `spec` is the config of the run, `fingerprint` the hash of what identifies the
    computation. `environment_digest` is that of a declared environment; `packages_digest` names the
    list of what ranks found, declared or not. `placement` is the id of the run's `Placement`,
    `cell` the place of a cell in its matrix (`model/address`), by which cells are sorted.

    `counted` is what of the code counts, as `<rule>:<digest>`; None where all of it does, as in
    records of an older sgpu.

    A field that comes later is text or None, and None by default: older states and plans lack it.
    """

    spec: Spec
    fingerprint: str
    code_digest: str | None = None
    environment_digest: str | None = None
    packages_digest: str | None = None
    placement: str | None = field(default=None, metadata=written_as("pool"))
    cell: str | None = None
    counted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Why a launch was decided, and from which files. `reason` is that of the plan; it is text,
    since another version may know other reasons. `commit` is what was checked out, and `dirty` says
    whether a tracked file differed from it. `function` is what was called, by its name, where the
    launch is a call. What is not known is None: launches of an older sgpu have none of it."""

    reason: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    function: str | None = field(default=None, metadata=SOMETIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """All that a backend needs to launch an attempt, the same when a crash made it begin again, and
    to find it later, from any machine.

    `token` makes the launch idempotent. `owner` is the file that declares the run, relative to the
    project. `wait_for` names older attempts of the same run that must have ended before its ranks
    start, `after` those of other runs that must have succeeded. `reference` says where the attempt
    is and who launched it, in the backend's own words: what
    `Launcher.provisional_reference` returns before the launch, and then what `Launcher.launch`
    does. It stays the same if the run gets another address.
    `formerly` lists the addresses that the run had since the launch, the oldest first: what the
    attempt left on another machine may lie there still.
    """

    ref: AttemptRef = field(metadata=FLAT)
    backend: str
    token: str
    lineage: str
    owner: str
    inputs: LaunchInputs = field(metadata=FLAT)
    wait_for: tuple[int, ...] = ()
    after: tuple[AttemptRef, ...] = ()
    reference: str | None = None
    formerly: tuple[Address, ...] = ()
    provenance: Provenance = field(default=Provenance(), metadata=FLAT)

    def folder(self, project: Path) -> Path:
        """The folder that paths in the run's YAML start from."""
        return (project / self.owner).parent
