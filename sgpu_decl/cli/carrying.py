"""From a plan to its end: show, approve, apply, follow, answer."""

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

from sgpu_decl.cli.advancing import open_progress
from sgpu_decl.cli.approving import approve
from sgpu_decl.cli.attaching import Left, attach, await_stops, outcome_error, show_endings
from sgpu_decl.cli.failing import show_error
from sgpu_decl.cli.interrupting import Signals
from sgpu_decl.cli.planned import left_failed, refusal
from sgpu_decl.cli.showing import answer, interactive, note, plan_text
from sgpu_decl.errors import Interrupted, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.plan import Action
from sgpu_decl.views.apply_text import event_line
from sgpu_decl.views.status_text import tally

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.environments.progress import Progress
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.plan import Plan

__all__ = ["Manner", "carry_out"]


# a change is done, and nothing of it half done: a signal may stop the walk there
_DONE = frozenset(
    {
        Step.LAUNCHED,
        Step.CREATED,
        Step.ADOPTED,
        Step.UPDATED,
        Step.STAGED,
        Step.FORGOTTEN,
        Step.DESTROYED,
        Step.FAILED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How the command line asked for it. `ranks` is `None` for all; `parallelism` says how many
    launches overlap, `unattended` what to do where nobody can answer the question."""

    auto: bool
    ranks: tuple[int, ...] | None
    detach: bool
    json: bool
    question: str
    unattended: str
    parallelism: int = 1


def carry_out(session: "Session", plan: "Plan", *, manner: Manner, saved: bool, out: TextIO) -> int:
    """Carry `plan` out as `manner` says and return the exit code."""
    error = refusal(plan)
    if error is not None and manner.json:
        from sgpu_decl.planning.writing import plan_to_json

        answer({"plan": plan_to_json(plan)}, error=error)
        return error.exit_code
    if not manner.json:
        click.echo(plan_text(plan, out), color=True, nl=False)
    elif interactive() and not (manner.auto or saved):
        note(plan_text(plan, sys.stderr).rstrip("\n"))
    if error is not None:
        show_error(error)
        return error.exit_code
    approve(
        plan, auto=manner.auto, saved=saved, question=manner.question, unattended=manner.unattended
    )
    with Signals() as signals:
        return _applied(session, plan, manner=manner, signals=signals, out=out)


def _applied(
    session: "Session", plan: "Plan", *, manner: Manner, signals: Signals, out: TextIO
) -> int:
    pending = sum(change.action is not Action.NO_OP for change in plan.changes)

    waits_for = {change.address: change.waits_for for change in plan.changes}

    def sink(event: ApplyEvent) -> None:
        nonlocal pending
        line = event_line(event, waits_for=waits_for.get(event.address, ()))
        if line is not None:
            note(line)
        pending -= event.step in _DONE
        # with nothing left to do, what a signal means is a matter of following
        if signals.any and event.step in _DONE and pending > 0:
            raise Interrupted(
                "interrupted while the plan was being carried out",
                hint="what was launched goes on; `sgpu apply` again does the rest",
            )

    with open_progress() as progress:
        noticed = session.equip(plan, progress=_Interruptible(progress, signals))
    _tell(noticed)
    applied = session.apply(plan, sink=sink, parallelism=manner.parallelism)
    refs = (*applied.launched, *applied.adopted)
    left = Left.ENDED
    if not manner.detach:
        if refs:
            stream = sys.stderr if manner.json else out
            left = attach(session, refs, ranks=manner.ranks, out=stream, signals=signals)
        if left is Left.ENDED:
            await_stops(session, applied.stopping, signals)
        _tell(session.record_ended())
    runs = session.runs.describe(refs) if refs else []
    error = applied.failed[0][1] if applied.failed else None
    if error is None and not manner.detach:
        error = outcome_error(runs, left)
    error = error or left_failed(plan)
    _answer(plan, manner=manner, refs=refs, runs=runs, left=left, error=error)
    return error.exit_code if error else 0


def _tell(noticed: "tuple[Diagnostic, ...]") -> None:
    for finding in noticed:
        note(f"{finding.severity}[{finding.code}]: {finding.summary}")
        if finding.hint:
            note(f"hint: {finding.hint}")


class _Interruptible:
    """Lets a signal end what is prepared before the first effect."""

    def __init__(self, progress: "Progress", signals: Signals) -> None:
        self._progress = progress
        self._signals = signals

    def advance(self, phase: str, done: int, total: int) -> None:
        if self._signals.any:
            raise Interrupted(
                "interrupted while the environment was prepared",
                hint="nothing was launched; `sgpu apply` again goes on where it stopped",
            )
        self._progress.advance(phase, done, total)


def _answer(
    plan: "Plan",
    *,
    manner: Manner,
    refs: tuple[AttemptRef, ...],
    runs: "list[dict[str, Json]]",
    left: Left,
    error: SgpuError | None,
) -> None:
    if manner.json:
        from sgpu_decl.planning.writing import plan_to_json

        data: Json = {
            "plan": plan_to_json(plan),
            "attempts": [str(ref) for ref in refs],
            "attached": not manner.detach and left is Left.ENDED,
            "runs": runs,
        }
        answer(data, error=error)
        return
    if len(runs) > 1:
        note(tally([str(run["state"]) for run in runs]))
    elif not manner.detach and left is not Left.DETACHED:
        show_endings(runs)
    if refs and manner.detach:
        note(f"follow with `sgpu logs -f {shlex.quote(refs[0].address.label)}`")
    if error is not None and left is not Left.DETACHED:
        show_error(error)
