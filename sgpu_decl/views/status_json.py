"""Attempts as the JSON of the public contract: what `sgpu status` and `sgpu show` print."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.model.attempt_view import AttemptView, RunHistory, status_fields, time_text
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.model.rank_activity import WatchedRun


def status_object(view: AttemptView) -> dict[str, Json]:
    """The `status` object of an attempt."""
    address = view.ref.address
    return {"address": str(address), "name": address.label, **status_fields(view)}


def attempt_object(view: AttemptView) -> dict[str, Json]:
    """Which attempt it is, its state, and when it ran."""
    return {
        "address": str(view.ref.address),
        "name": view.ref.address.label,
        "attempt": view.ref.number,
        "state": str(view.state),
        "started_at": to_json(view.started_at, times=time_text),
        "ended_at": to_json(view.ended_at, times=time_text),
    }


def status_objects(views: Iterable[AttemptView]) -> list[dict[str, Json]]:
    return [status_object(view) for view in views]


def watched_objects(runs: "Iterable[WatchedRun]", now: datetime) -> list[dict[str, Json]]:
    """The `status` objects of runs, each with its `activity`."""
    return [{**status_object(run.view), "activity": _activity(run, now)} for run in runs]


def _activity(run: "WatchedRun", now: datetime) -> dict[str, Json]:
    used = run.gpu_hours(now)
    return {
        "gpus": run.gpus,
        "gpu_type": run.gpu_type,
        "gpu_hours": None if used is None else round(used, 4),
        "limit_seconds": run.limit_seconds,
        "measured_at": to_json(run.measured_at, times=time_text),
        "ranks": [to_json(one, times=time_text) for one in run.ranks] if run.told else None,
    }


def run_object(run: "RunHistory") -> dict[str, Json]:
    """A `status` object whole, with the spec that was launched and the run's history."""
    from sgpu_decl.storing.state_json import attempt_to_json
    from sgpu_decl.views.launch_reason import changes_of

    changes = changes_of([attempt for attempt, _ in run.attempts])
    return {
        **status_object(run.view),
        "spec": run.spec.fields,
        "history": [
            {
                **attempt_to_json(attempt.seen_as(view)),
                "restart": view.restart,
                "changed": list(changed),
            }
            for (attempt, view), changed in zip(run.attempts, changes, strict=True)
        ],
    }
