"""The registry of backends: one value for each kind, found by its name.

Ours stand in a table of modules. Any other name is looked for among the entry points of the group
`sgpu.backends` that installed packages have. No module of a kind is imported before its name is
used. Such a module imports the standard library and this one.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from sgpu_decl.model.environment import Base
    from sgpu_decl.model.job import JobRules
    from sgpu_decl.model.state import Attempt

__all__ = [
    "DEFAULT",
    "GROUP",
    "BackendKind",
    "Capabilities",
    "Joining",
    "bases_of",
    "capabilities_of",
    "is_remote",
    "job_platform",
    "job_rules",
    "kind_named",
    "may_have_base",
    "only_kind",
    "our_kinds",
    "remote_kind",
]

GROUP = "sgpu.backends"
"""The group of entry points that other packages register their kinds in."""

DEFAULT = "local"
"""The kind of a run that names none."""

_MODULES = {
    name: f"sgpu_decl.backends.{name}.kind"
    for name in (DEFAULT, "ssh", "slurm", "ray", "databricks")
}  # in the order in which they are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """How runs that come after each other are started as one: at most `most` of them, with the same
    values in the fields `same`."""

    most: int
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`remote`: whether ranks run on other machines, which their code and environment are sent to.
    `in_place`: launch fields that can change while an attempt is active. `fields`: the optional
    fields of `planner/policy` that the backend has. `queues`: whether an attempt can wait for an
    earlier one of its run to end by itself. `joins`: set where runs that come after each other are
    started as one, so that one plan must launch them."""

    remote: bool = False
    in_place: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    queues: bool = True
    joins: Joining | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """All that the engine knows of one kind of backend. What it makes of a room above this one is
    an `object` here, and the caller checks it.

    Attributes:
        name: what `backend.kind` says.
        options: gives the pydantic model of the `backend` block (`BackendOptions`), which is
            imported then.
        capabilities: what plans may ask of it.
        open: makes the `Backend` of a project and target, of a `BackendContext`; `None` for a kind
            that runs nothing yet.
        survey: the `Survey` that planning asks, of a `BackendContext` too, where it is had without
            the backend; else it is the backend's.
        bases: the base environments that ranks may run on, which `env.base` names.
        may_have_base: whether its platform may have a base of that name which is none of these.
        jobs: gives what the platform makes of the settings of jobs, if the kind keeps jobs:
            `Backend.jobs` is there.
        checks: whether its platform can be measured: `Backend.checks` is there.
        takes_calls: whether a function that is called with `remote=True` runs there, if its project
            names no backend; of one of our kinds alone.
        orphans: the attempts, below a state's folder, that still run though their folders were
            deleted; where its supervisors leave records elsewhere.
        state_root: the `StateRoot` of a `SharedPlace`, where its platform has files for states; of
            one of our kinds alone.
        check_reference: raises ValueError for a `LaunchRecord.reference` in a shared state that no
            launch of this kind has.
        database_token: gives a token that the platform's PostgreSQL takes for a password; of one of
            our kinds alone.
        bundle: makes the `BundleBackend` of a `BackendContext` and a folder, where the platform has
            bundles of files and jobs; of one of our kinds alone.
        written_job: gives the `WrittenJob` of the settings of a job in the words of the platform,
            its name in the YAML, and the paths of files beside the YAML by those in its tasks.
    """

    name: str
    options: Callable[[], type]
    capabilities: Capabilities
    open: Callable[..., object] | None = None
    survey: Callable[..., object] | None = None
    bases: "Callable[[], tuple[Base, ...]]" = tuple
    may_have_base: Callable[[str], bool] = lambda _: False
    jobs: "Callable[[], JobRules] | None" = None
    checks: bool = False
    takes_calls: bool = False
    orphans: "Callable[[Path], tuple[Attempt, ...]] | None" = None
    state_root: Callable[..., object] | None = None
    database_token: Callable[[], str] | None = None
    check_reference: Callable[[str], None] | None = None
    bundle: Callable[..., object] | None = None
    written_job: Callable[..., object] | None = None


@cache
def kind_named(name: str) -> BackendKind:
    """Return the kind of that name.

    Raises:
        BackendError: there is none, or the package that has it does not load.
    """
    if name in _MODULES:
        kind: BackendKind = import_module(_MODULES[name]).KIND
        return kind
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        near = nearest(name, (*_MODULES, *points))
        names = ", ".join(f"`{item}`" for item in (*_MODULES, *sorted(points)))
        raise BackendError(
            f"there is no backend `{name}`",
            hint=f"did you mean `{near}`?"
            if near
            else f"known: {names}; a package can provide others (entry points `{GROUP}`)",
            code="unknown_value",
        )
    return _provided(points[name])


def our_kinds() -> tuple[BackendKind, ...]:
    """Those that come with sgpu."""
    return tuple(map(kind_named, _MODULES))


def capabilities_of(*names: str) -> dict[str, Capabilities]:
    """The capabilities of our kinds, and of those named, as far as they can run something."""
    return {kind.name: kind.capabilities for kind in _with_ours(names) if kind.open is not None}


def bases_of(*names: str) -> "tuple[Base, ...]":
    """The base environments of our kinds, and of those named."""
    return tuple(base for kind in _with_ours(names) for base in kind.bases())


def may_have_base(name: str, *kinds: str) -> bool:
    """Whether one of our kinds, or of those named, may have a base that is none of `bases_of`."""
    return any(kind.may_have_base(name) for kind in _with_ours(kinds))


def _with_ours(names: tuple[str, ...]) -> tuple[BackendKind, ...]:
    return (*our_kinds(), *(kind_named(name) for name in names if name not in _MODULES))


def is_remote(name: str) -> bool:
    """Whether ranks of that kind run on other machines.

    Raises:
        BackendError: see `kind_named`.
    """
    return kind_named(name).capabilities.remote


def job_rules(name: str) -> "JobRules":
    """The rules of the jobs of that kind; those of no platform if it keeps none, or is not
    installed any more."""
    from sgpu_decl.model.job import JobRules

    try:
        rules_of = kind_named(name).jobs
    except BackendError:
        rules_of = None
    return rules_of() if rules_of is not None else JobRules()


def job_platform() -> BackendKind:
    """The kind that keeps the jobs which name none, and launch no run that names one.

    Raises:
        BackendError: there is not one, but several.
    """
    return only_kind("keeps notebooks", lambda kind: kind.jobs and kind.capabilities.remote)


def only_kind(does: str, fits: Callable[[BackendKind], object]) -> BackendKind:
    """Return the only built-in kind that `fits`, for what names none.

    Args:
        does: what it does, for the message.

    Raises:
        BackendError: none does, or more than one.
    """
    fitting = [kind for kind in our_kinds() if fits(kind)]
    if len(fitting) != 1:
        names = ", ".join(f"`{kind.name}`" for kind in fitting) or "none"
        raise BackendError(
            f"`backend` is missing, and not one backend {does} but {len(fitting)}: {names}",
            hint="name one with `backend`",
        )
    return fitting[0]


def remote_kind() -> BackendKind:
    """Return the kind of a called function that is to run on other machines, and names none.

    Raises:
        BackendError: there is not one, but several.
    """
    return only_kind("takes remote calls", lambda kind: kind.takes_calls)


def _provided(point: "EntryPoint") -> BackendKind:
    package = point.dist.name if point.dist is not None else point.value
    try:
        kind = point.load()
    except Exception as error:
        raise _broken(point, package, f"{type(error).__name__}: {error}") from error
    if not isinstance(kind, BackendKind) or kind.name != point.name:
        raise _broken(point, package, f"`{point.value}` is no BackendKind of that name")
    return kind


def _broken(point: "EntryPoint", package: str, why: str) -> BackendError:
    return BackendError(
        f"the backend `{point.name}` of the package `{package}` does not load: {why}",
        hint=f"repair or remove the package `{package}`",
        code="broken_backend",
    )
