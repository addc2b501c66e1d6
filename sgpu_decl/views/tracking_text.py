"""Where MLflow has the run of an attempt, and notes if that is another store than the run names."""

from collections.abc import Iterator, Mapping

from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.terminal import count, escape


def tracked_line(view: AttemptView) -> str:
    """Where MLflow keeps the run of an attempt; empty if it is not tracked."""
    tracked = _tracked(view)
    if "run_id" not in tracked:
        return ""
    experiment = _text(tracked, "experiment") or _text(tracked, "experiment_id")
    link = _text(tracked, "url")
    host = f" on {_text(tracked, 'host')}" if "host" in tracked else ""
    where = f": {link}" if link else f" in {_text(tracked, 'tracking_uri')}{host}"
    return f"MLflow: run {_text(tracked, 'run_id')} of the experiment {experiment}{where}"


def store_notes(view: AttemptView) -> list[str]:
    """How to see the MLflow run of an attempt whose store is on another machine."""
    host = _text(_tracked(view), "host")
    return [f"the MLflow run is in a store on {host}: `sgpu mlflow ui` shows it"] if host else []


def tracking_notes(view: AttemptView) -> list[str]:
    """Notes on what a user may not expect of the tracking of a run; mostly none."""
    return list(_notes(_tracked(view), str(view.ref)))


def _notes(tracked: Mapping[str, Json], name: str) -> Iterator[str]:
    if "error" in tracked:
        yield f"{name} is not tracked by MLflow: {_text(tracked, 'error')}"
    missed, synced = tracked.get("instead_of"), tracked.get("synced")
    if isinstance(synced, Mapping):
        yield f"{name} was pushed to {_text(synced, 'tracking_uri')}"
    elif isinstance(missed, Mapping):
        yield (
            f"{name} is tracked in the local store {_text(tracked, 'tracking_uri')}, as "
            f"{_text(missed, 'reason')}; push it with `sgpu mlflow sync '{name}'`"
        )
    if "open" in tracked:
        yield (
            f"MLflow does not know yet how {name} ended: {_text(tracked, 'open')}; the next "
            "`sgpu status` that reaches the server sends it"
        )
    if "undescribed" in tracked:
        yield (
            f"the MLflow run of {name} lacks its name, tags and parameters: "
            f"{_text(tracked, 'undescribed')}"
        )
    elsewhere = tracked.get("elsewhere")
    for place in elsewhere if isinstance(elsewhere, list) else ():
        if isinstance(place, Mapping):
            yield _elsewhere(place, name)


def _elsewhere(place: Mapping[str, Json], name: str) -> str:
    runs = place.get("runs")
    number = runs if isinstance(runs, int) else 1
    return (
        f"the code of {name} logged to {count(number, 'run')} of its own, in the experiment "
        f"{_text(place, 'experiment')} of {_text(place, 'tracking_uri')}"
    )


def _tracked(view: AttemptView) -> Mapping[str, Json]:
    tracked = view.links.get("mlflow")
    return tracked if isinstance(tracked, Mapping) else {}


def _text(values: Mapping[str, Json], name: str) -> str:
    return escape(str(values.get(name) or ""))
