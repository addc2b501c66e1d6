"""What differs between two attempts: what they were launched with, and what came of them."""

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import FieldDifference, PackageChange


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file of the code. `change` is `added`, `removed` or `changed`; `lines` are those of a
    unified diff without its head, empty where `note` says why there are none."""

    path: str
    change: str
    lines: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDiff:
    """A result or a metric; None where one side has none."""

    name: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDiff:
    """`before` and `after` are the attempts as they are now. `gaps` says what could not be
    compared, and why; `unknown` are the parts of which not all is known."""

    before: AttemptView
    after: AttemptView
    fields: tuple[FieldDifference, ...] = ()
    files: tuple[FileDiff, ...] = ()
    packages: tuple[PackageChange, ...] = ()
    results: tuple[ValueDiff, ...] = ()
    metrics: tuple[ValueDiff, ...] = ()
    gaps: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()
