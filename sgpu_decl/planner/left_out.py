"""What a plan says of runs and jobs that its target leaves out."""

from collections.abc import Iterator, Mapping

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.target import BASE
from sgpu_decl.planner.last_known import CurrentAttempts
from sgpu_decl.planner.plan_inputs import PlanRequest

_SHOWN = 5


def left_out_checks(
    known: Mapping[Address, CurrentAttempts], request: PlanRequest
) -> Iterator[Diagnostic]:
    """Name what the target leaves out, once for all, and what goes on or ends for that reason."""
    if not request.left_out:
        return
    target = f"the target `{request.target or BASE}`"
    names = [f"`{address}`" for address in sorted(request.left_out, key=str)]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    yield Diagnostic(
        code="left_out",
        severity=Severity.INFO,
        summary=f"{target} leaves out {', '.join(names[:_SHOWN])}{more}",
        place=None,
        hint="`enabled` and `targets` of a run or job decide that",
    )
    for address, attempts in known.items():
        resource = attempts.resource
        if resource is None or resource.gone or not request.owns(resource.owner):
            continue
        if address.kind is Kind.JOB and address in request.left_out and request.selects(address):
            yield Diagnostic(
                code="left_out_exists",
                severity=Severity.WARNING,
                address=str(address),
                summary=f"{target} leaves it out, so it is deleted",
                place=None,
                hint="to keep it without launches, write `paused: true` for this target instead",
            )
        elif address.kind is Kind.RUN and request.leaves_out(address) and attempts.active:
            yield Diagnostic(
                code="left_out_exists",
                severity=Severity.WARNING,
                address=str(address),
                summary=f"{target} leaves it out, and `{attempts.active[-1].ref}` is active: it "
                "goes on",
                place=None,
                hint=f"`sgpu cancel '{address.label}'` ends it",
            )
