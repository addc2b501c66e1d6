"""The files of the tracker in the attempt folder.

`mlflow.json` is `{"run_id", "experiment_id", "experiment", "tracking_uri", "env"}`, or `{"error"}`
if there is no run. Optional keys: `instead_of` (`tracking_uri`, `reason`) if the local store is
used instead of another; `open` (the reason) while the store does not know how the attempt ended;
`synced` (`tracking_uri`, `run_id`) once the run was pushed to a server. `mlflow_elsewhere.jsonl`
has a line for each other run that the code of a Python rank made: `{"tracking_uri", "experiment",
"run_id"}`. `tracker.json` says what the tracker waits for: `{"waiting_for"}`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import OPEN_RUNS, TRACKED, write_atomic
from sgpu_decl.agent.system.locks import held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

ELSEWHERE = "mlflow_elsewhere.jsonl"


def write_record(folder: Path, name: str, value: Mapping[str, Json]) -> None:
    """Replace a file of the attempt folder.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(os.fspath(folder), name, json.dumps(value).encode())


def read_record(folder: Path) -> dict[str, Json] | None:
    """Return the content of `mlflow.json`; None if there is none yet."""
    try:
        record = json.loads((folder / TRACKED).read_bytes())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def has_open_runs(home: Path) -> bool:
    """Whether an MLflow run of the project with that `.sgpu` folder may still be open."""
    try:
        return bool(os.listdir(home / OPEN_RUNS))
    except OSError:
        return False


def forgotten_runs(home: Path) -> int:
    """How many MLflow runs of the project are open without a tracker that would close them."""
    return sum(held(os.fspath(path)) is False for path in (home / OPEN_RUNS).glob("*.json"))


def change_record(folder: Path, **fields: Json) -> None:
    """Set fields of `mlflow.json`; None takes one out. Nothing is done where it is gone."""
    record = read_record(folder)
    if record is not None:
        fields_ = {**record, **fields}
        write_record(
            folder, TRACKED, {name: value for name, value in fields_.items() if value is not None}
        )


def tracking_links(folder: Path) -> dict[str, Json]:
    """Return where MLflow has the attempt of a folder, as `status` shows it; empty where nothing
    tracks it. Passwords are masked. `elsewhere` lists where its ranks made runs of their own:
    `tracking_uri`, `experiment`, `runs`, each place once."""
    record = read_record(folder) or {}
    elsewhere = _elsewhere(folder)
    links = {**record, "elsewhere": elsewhere} if elsewhere else record
    if not links:
        return links

    from sgpu_decl.diagnostics.masks import masked  # nodes have no such room, nor links

    return masked(links)  # somebody may have exported a password in MLFLOW_TRACKING_URI


def _elsewhere(folder: Path) -> list[Json]:
    try:
        lines = (folder / ELSEWHERE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    places: Counter[tuple[str, str]] = Counter()
    for line in lines:
        try:
            run = json.loads(line)
        except ValueError:
            continue  # cut short where the disk was full
        if isinstance(run, dict):
            places[str(run.get("tracking_uri")), str(run.get("experiment"))] += 1
    return [
        {"tracking_uri": uri, "experiment": experiment, "runs": number}
        for (uri, experiment), number in places.items()
    ]
