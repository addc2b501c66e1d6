"""What a valid config asks for and planning must refuse: engines that are not there yet, and fields
that the chosen backend does not have."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Check
from sgpu_decl.planning.capabilities import OPTIONAL_FIELDS, Capabilities
from sgpu_decl.planning.differing import parse

__all__ = ["check_of", "lint", "place_of"]


@dataclass(frozen=True, slots=True)
class _NotYet:
    path: str
    what: str
    hint: str


_NOT_YET = (_NotYet("ray", "Ray launches", "leave `ray` out and use `entrypoint` or `command`"),)

# A spec that holds none of these words cannot hold the fields: 10,000 specs are not parsed for it.
_WORDS = tuple(
    f'"{path.rpartition(".")[2]}":' for path in (*(e.path for e in _NOT_YET), *OPTIONAL_FIELDS)
)


def lint(desired: Iterable[Desired], capabilities: Mapping[str, Capabilities]) -> tuple[Check, ...]:
    """Return the checks of all wanted runs: facts that were found before, and refusals.

    A finding that repeats in many cells of a matrix is given once, for the first of them.
    """
    found: dict[tuple[str, str, Place | None], Check] = {}
    for wanted in desired:
        for finding in (*wanted.findings, *_refusals(wanted, capabilities)):
            key = (finding.code, finding.summary, finding.place)
            if key not in found:
                found[key] = check_of(finding, wanted.address)
    return tuple(found.values())


def check_of(finding: Diagnostic, address: Address | None) -> Check:
    return Check(
        id=finding.code,
        severity=finding.severity,
        address=address,
        summary=finding.summary,
        hint=finding.hint,
        place=finding.place,
    )


def place_of(places: Mapping[str, Place], path: str) -> Place | None:
    """Return where `path` was written, or the nearest block above it that was."""
    while path:
        place = places.get(path)
        if place is not None:
            return place
        path = path.rpartition(".")[0]
    return None


def _refusals(wanted: Desired, capabilities: Mapping[str, Capabilities]) -> Iterator[Diagnostic]:
    can = capabilities.get(wanted.backend)
    if can is None:
        offered = ", ".join(f"`{name}`" for name in sorted(capabilities))
        yield Diagnostic(
            code="backend_not_yet",
            severity=Severity.ERROR,
            summary=f"the backend `{wanted.backend}` is not available yet",
            place=place_of(wanted.places, "backend.kind"),
            hint=f"use one of {offered}, here or in a target",
        )
    if not any(word in wanted.spec for word in _WORDS):
        return
    spec = parse(wanted.spec)
    for entry in _NOT_YET:
        if _present(spec, entry.path):
            yield Diagnostic(
                code="not_yet",
                severity=Severity.ERROR,
                summary=f"`{entry.path}` asks for {entry.what}, which are not available yet",
                place=place_of(wanted.places, entry.path),
                hint=entry.hint,
            )
    if can is None:
        return
    for field in sorted(OPTIONAL_FIELDS - can.fields):
        if _present(spec, field):
            yield Diagnostic(
                code="unsupported_field",
                severity=Severity.ERROR,
                summary=f"the backend `{wanted.backend}` has no `{field}`",
                place=place_of(wanted.places, field),
                hint=f"leave `{field}` out, or move it to a target whose backend has it",
            )


def _present(spec: Mapping[str, Json], path: str) -> bool:
    """An empty block counts: `ray: {}` asks for Ray; `false` and `null` do not."""
    value: Json = spec
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return value is not None and value is not False
