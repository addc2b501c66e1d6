"""The loop from a plan to launched runs, for commands and for functions that are called."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.applying.apply import apply, stage
from sgpu_decl.applying.apply_result import Applied
from sgpu_decl.applying.rollout_events import RolloutEvents
from sgpu_decl.errors import StalePlan, StateMoved
from sgpu_decl.model.plan_options import PlanOptions
from sgpu_decl.planning.preparation import prepare
from sgpu_decl.planning.prepared import Prepared
from sgpu_decl.planning.target_rules import refuse_by_rules, without_rule_checks

if TYPE_CHECKING:
    from sgpu_decl.model.call import Call
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.planning.project import Project


def roll_out(
    project: "Project",
    source: PlanOptions | Prepared,
    events: RolloutEvents,
    *,
    parallelism: int,
    reviewed: bool,
    call: "Call | None",
) -> tuple[Prepared, Applied]:
    """Plan, stage and apply; see `Session.roll_out`."""
    refuse_by_rules(project, reviewed=reviewed)
    prepared, before = _planned(project, source, events), None
    while True:
        try:
            events.planned(prepared, same=before is not None and _same(before, prepared))
            with events.staging() as progress:
                staged, findings = stage(project, prepared, progress)
            events.noticed(findings)
            with events.launching() as progress:
                applied = apply(
                    project,
                    staged,
                    sink=events.changed,
                    parallelism=parallelism,
                    call=call and replace(call, keep_warm=staged.keep_warm),
                    on_wait=events.waiting,
                    reviewed=reviewed,
                    progress=progress,
                )
                events.applied(applied)
            events.noticed(applied.unrecorded)
            return prepared, applied
        except StalePlan as stale:
            # Two plans that were made in the same millisecond are the same plan.
            twin = stale.code == "plan_applied"
            if isinstance(source, Prepared) or not (twin or isinstance(stale, StateMoved)):
                raise
            events.moved(stale)
        before, prepared = prepared, _planned(project, source, events)


def _planned(project: "Project", source: PlanOptions | Prepared, events: RolloutEvents) -> Prepared:
    if isinstance(source, Prepared):
        return replace(source, plan=without_rule_checks(source.plan))
    project.guarded, project.for_apply = False, True  # what is planned is about to be launched
    with events.planning() as progress:
        return prepare(project, source, progress=progress, for_apply=True)


def _same(one: Prepared, other: Prepared) -> bool:
    """Whether two plans make the same changes, maybe of different states."""

    def compared(prepared: Prepared) -> "dict[str, Json]":
        ignored = ("created_at", "lineage", "serial", "git")
        return {key: value for key, value in prepared.to_json().items() if key not in ignored}

    return compared(one) == compared(other)
