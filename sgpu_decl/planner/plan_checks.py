"""What a valid config asks for and planning must refuse: engines that are not there yet, and fields
that the chosen backend does not have."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planner.policy import FIELDS, OPTIONAL_FIELDS

# A spec that holds none of these words cannot hold the fields: 10,000 specs are not parsed for it.
_WORDS = tuple(f'"{field.rpartition(".")[2]}":' for field in OPTIONAL_FIELDS)
_NAMED = 4  # runs that have a finding in common


def run_checks(
    desired: Iterable[DesiredRun], capabilities: Mapping[str, Capabilities]
) -> tuple[Diagnostic, ...]:
    """Return the checks of all wanted runs: facts that were found before, and refusals.

    A finding that repeats in many cells of a matrix is given once, for the first of them.
    """
    checks: dict[tuple[str, str, Place | None], Diagnostic] = {}
    for run in desired:
        for finding in (*run.findings, *_refusals(run, capabilities)):
            key = (finding.code, finding.summary, finding.place)
            if key not in checks:
                checks[key] = check_of(finding, run.address)
    return tuple(checks.values())


def not_yet(name: str, place: Place | None) -> Diagnostic:
    """The refusal of a field that nothing acts on yet."""
    return Diagnostic(
        code="not_yet",
        summary=f"`{name}` is valid, and this version cannot act on it yet",
        place=place,
        hint=f"take `{name}` out for now",
    )


def check_of(finding: Diagnostic, address: Address | None) -> Diagnostic:
    """A finding that was made elsewhere, as one of the plan: with what its JSON has."""
    about = None if address is None else str(address)
    return replace(finding, address=about, related=(), incomplete=False)


def found_check(finding: Diagnostic, runs: Sequence[Address]) -> Diagnostic:
    """A finding about one run, or about several: the check has the address of the first, and names
    the others. None are those of a finding about the whole file."""
    if not runs:
        return check_of(finding, None)
    named = ", ".join(f"`{run}`" for run in runs[1:_NAMED])
    more = f" and {len(runs) - _NAMED:,} more" if len(runs) > _NAMED else ""
    also = f" (also {named}{more})" if named else ""
    return check_of(replace(finding, summary=f"{finding.summary}{also}"), runs[0])


def place_of(places: Mapping[str, Place], path: str) -> Place | None:
    """Return where `path` was written, or the nearest block above it that was."""
    while path:
        place = places.get(path)
        if place is not None:
            return place
        path = path.rpartition(".")[0]
    return None


def _refusals(run: DesiredRun, capabilities: Mapping[str, Capabilities]) -> Iterator[Diagnostic]:
    can = capabilities.get(run.backend)
    if can is None:
        offered = ", ".join(f"`{name}`" for name in sorted(capabilities))
        yield Diagnostic(
            code="backend_not_yet",
            severity=Severity.ERROR,
            summary=f"the backend `{run.backend}` is not available yet",
            place=place_of(run.places, "backend.kind"),
            hint=f"use one of {offered}, here or in a target",
        )
    yield from _unknown_paths(run)
    if not any(word in run.spec.text for word in _WORDS):
        return
    spec = run.spec.fields
    anywhere = frozenset[str]().union(*(capability.fields for capability in capabilities.values()))
    for field in sorted(OPTIONAL_FIELDS - (can.fields if can is not None else anywhere)):
        if not _present(spec, field):
            continue
        if field not in anywhere:
            yield not_yet(field, place_of(run.places, field))
        else:
            yield Diagnostic(
                code="unsupported_field",
                severity=Severity.ERROR,
                summary=f"the backend `{run.backend}` has no `{field}`",
                place=place_of(run.places, field),
                hint=f"leave `{field}` out, or move it to a target whose backend has it",
            )


def _unknown_paths(run: DesiredRun) -> Iterator[Diagnostic]:
    for path in run.ignore_changes:
        field = path.partition(".")[0]
        if field in FIELDS:
            continue
        near = nearest(field, FIELDS)
        yield Diagnostic(
            code="ignore_unused",
            severity=Severity.WARNING,
            summary=f"`lifecycle.ignore_changes` names `{path}`, which no run has",
            place=place_of(run.places, "lifecycle.ignore_changes"),
            hint=f"did you mean `{near}`?"
            if near
            else "name a field, such as `env.variables.SEED`",
        )


def _present(spec: Mapping[str, Json], field: str) -> bool:
    """An empty block counts: `ray: {}` asks for Ray; `false` and `null` do not."""
    block, _, below = field.partition(".")
    value = spec.get(block)
    if below:
        return isinstance(value, Mapping) and bool(value.get(below))
    return value is not None and value is not False
