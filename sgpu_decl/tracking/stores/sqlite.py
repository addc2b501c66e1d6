"""A SQLite store, by SQL, in milliseconds: MLflow is not imported.

The statements are those of `mlflow.store.tracking.sqlalchemy_store`. They hold for the revisions of
the schema in `REVISIONS`; a store of another revision is left to MLflow's own client.
"""

import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sgpu_decl.tracking.mlflow_status import TrackedOutcome
from sgpu_decl.tracking.stores.store_protocol import (
    EXPERIMENT_TAGS,
    CreatedRun,
    MetricHistory,
    MetricRow,
    StoreError,
    batches,
    deleted_experiment,
)
from sgpu_decl.tracking.tracking_request import TrackingRequest

_LARGEST = 1.7976931348623157e308  # what MLflow stores for an infinity
ARTIFACTS = "mlruns"  # DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH of mlflow.store.tracking

# `alembic_version` of every release from 3.1.0 to 3.17.2, and of the revisions between them.
REVISIONS = frozenset({
    "6953534de441", "bda7b8c39065", "cbc13b556ace", "770bee3ae1dd", "a1b2c3d4e5f6", "de4033877273",
    "1a0cddfcaa16", "534353b11cbc", "71994744cf8e", "3da73c924c2f", "bf29a5ff90ea", "1bd49d398cd23",
    "b7c8d9e0f1a2", "5d2d30f0abce", "c9d4e5f6a7b8", "2c33131f4dae", "d3e4f5a6b7c8", "d0e1f2a3b4c5",
    "c8d9e0f1a2b3", "1b5f0d9ad7c1", "e1f2a3b4c5d6", "76601a5f987d", "c3d6457b6d8a", "a5b4c3d2e1f0",
    "ae8bbe7743c9", "7d34483879f0", "da6fb0208061", "89d3d66ed43f", "b7e4c1a90f23", "a8b9c0d1e2f3",
    "c1d2e3f4a5b6", "c3d9e7f1a2b4", "6f8d9c3b2a1e", "1971f2d9a75b", "17e22815139b", "b7e2c1a4d9f3",
    "75868b020152", "dc11669786a5",
})  # fmt: skip

_MOST_VARIABLES = 500  # of one statement: SQLite takes 999 in its oldest versions
_PATIENCE = 20.0  # seconds for which other writers hold the file: MLflow's own busy_timeout
_TAG = """INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)
          ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"""


def revision(path: Path, patience: float = _PATIENCE) -> str | None:
    """Return the revision of the schema in a SQLite file, None where it holds no MLflow store.

    Args:
        patience: how many seconds to wait for another program that writes.

    Raises:
        StoreError: the file cannot be read, or is no database.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    with _connected(path, patience) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if not {"alembic_version", "runs", "experiments"} <= names:
            return None
        row = db.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def artifact_folder(path: Path, run_id: str) -> Path | None:
    """The folder of a run's artifacts in the store `path`; None where they are no files of this
    machine.

    Raises:
        StoreError: the store has no such run, or cannot be read.
    """
    with _connected(path) as db:
        row = db.execute("SELECT artifact_uri FROM runs WHERE run_uuid = ?", (run_id,)).fetchone()
    if row is None:
        raise StoreError(f"{path} has no run {run_id}")
    place = urlsplit(str(row[0]))
    local = place.scheme in ("", "file") and not place.netloc
    return Path(url2pathname(place.path)) if local else None


class SqlRunStore:
    """Experiments for which the request names no folder keep their artifacts beside the store, in
    `mlruns/<id>`, as those of MLflow do."""

    def __init__(
        self, path: Path, connected: "Callable[[Path], AbstractContextManager[Any]] | None" = None
    ) -> None:
        self._path = path
        self._read = connected or _connected  # a store on another machine is only read

    def create(self, request: TrackingRequest) -> CreatedRun:
        run_id = uuid.uuid4().hex
        with _connected(self._path) as db:
            db.execute("BEGIN IMMEDIATE")
            experiment, location = self._experiment(db, request)
            db.execute(
                """INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name,
                       user_id, status, start_time, source_version, lifecycle_stage, artifact_uri,
                       experiment_id)
                   VALUES (?, ?, 'UNKNOWN', '', '', 'unknown', 'RUNNING', ?, '', 'active', ?, ?)""",
                (run_id, request.run_name, _now(), f"{location.rstrip('/')}/{run_id}/artifacts",
                 experiment),
            )  # fmt: skip
            _tag(db, run_id, {"mlflow.runName": request.run_name, **request.tags})
            db.execute("COMMIT")
        return CreatedRun(run_id=run_id, experiment_id=str(experiment))

    def resume(self, request: TrackingRequest) -> CreatedRun | None:
        with _connected(self._path) as db:
            db.execute("BEGIN IMMEDIATE")
            row = db.execute(
                """UPDATE runs SET status = 'RUNNING', end_time = NULL
                   WHERE lifecycle_stage = 'active' AND run_uuid IN
                       (SELECT run_uuid FROM tags WHERE key = 'sgpu.token' AND value = ?)
                   RETURNING run_uuid, experiment_id""",
                (request.token,),
            ).fetchone()
            db.execute("COMMIT")
        return CreatedRun(run_id=row[0], experiment_id=str(row[1])) if row is not None else None

    def record(self, run_id: str, request: TrackingRequest) -> None:
        rows = [(key, value, run_id) for key, value in request.params.items()]
        with _connected(self._path) as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT OR IGNORE INTO params (key, value, run_uuid) VALUES (?, ?, ?)", rows
            )
            db.execute("COMMIT")

    def last_metrics(self, runs: Mapping[str, str]) -> dict[str, dict[str, float]]:
        metrics: dict[str, dict[str, float]] = {}
        with self._read(self._path) as db:
            for some in batches(sorted(runs), _MOST_VARIABLES):
                marks = ", ".join("?" * len(some))
                rows = db.execute(
                    f"""SELECT run_uuid, key, value, is_nan FROM latest_metrics
                        WHERE run_uuid IN ({marks}) ORDER BY run_uuid, key""",  # noqa: S608  marks
                    some,
                )
                for run_id, key, value, is_nan in rows:
                    metrics.setdefault(run_id, {})[key] = math.nan if is_nan else value
        return metrics

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        history: MetricHistory = {}
        with self._read(self._path) as db:
            for name in names:
                rows = db.execute(
                    """SELECT step, value, is_nan FROM metrics WHERE run_uuid = ? AND key = ?
                       ORDER BY step, timestamp""",
                    (run_id, name),
                )
                history[name] = [(step, math.nan if nan else value) for step, value, nan in rows]
        return history

    def log(self, run_id: str, rows: Sequence[MetricRow], moment: int) -> None:
        values = [(name, *_stored(value), moment, run_id, step) for name, value, step in rows]
        columns = "(key, value, is_nan, timestamp, run_uuid, step) VALUES (?, ?, ?, ?, ?, ?)"
        last = {item[0]: item for item in sorted(values, key=lambda item: item[-1])}
        with _connected(self._path) as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(f"INSERT OR IGNORE INTO metrics {columns}", values)
            db.executemany(f"INSERT OR REPLACE INTO latest_metrics {columns}", last.values())
            db.execute("COMMIT")

    def finish(self, run_id: str, end: TrackedOutcome) -> None:
        with _connected(self._path) as db:
            db.execute("BEGIN IMMEDIATE")
            update = db.execute(
                """UPDATE runs SET status = ?, end_time = ?
                   WHERE run_uuid = ? AND lifecycle_stage = 'active'""",
                (end.status, end.ended_at or _now(), run_id),
            )
            if update.rowcount:
                _tag(db, run_id, end.tags)
            db.execute("COMMIT")

    def _experiment(self, db: sqlite3.Connection, request: TrackingRequest) -> tuple[int, str]:
        """Return the experiment's id and where its artifacts lie."""
        row = db.execute(
            "SELECT experiment_id, artifact_location, lifecycle_stage FROM experiments "
            "WHERE name = ?",
            (request.experiment,),
        ).fetchone()
        if row is not None:
            identity, location, stage = row
            if stage != "active":
                raise deleted_experiment(request.experiment)
            return identity, str(location)
        identity = db.execute(
            """INSERT INTO experiments
                   (name, artifact_location, lifecycle_stage, creation_time, last_update_time)
               VALUES (?, ?, 'active', ?, ?)""",
            (request.experiment, request.artifacts, _now(), _now()),
        ).lastrowid
        if identity is None:
            raise StoreError(f"the experiment `{request.experiment}` could not be created")
        db.executemany(
            "INSERT INTO experiment_tags (key, value, experiment_id) VALUES (?, ?, ?)",
            [(key, value, identity) for key, value in EXPERIMENT_TAGS.items()],
        )
        if request.artifacts is not None:
            return identity, request.artifacts
        location = str(self._path.parent / ARTIFACTS / str(identity))
        db.execute(
            "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?",
            (location, identity),
        )
        return identity, location


def _stored(value: float) -> tuple[float, bool]:
    """A value and whether it is NaN, as `sanitize_metric_value` of MLflow's store has it."""
    if math.isnan(value):
        return 0.0, True
    return max(-_LARGEST, min(_LARGEST, value)), False


def _tag(db: sqlite3.Connection, run_id: str, tags: Mapping[str, str]) -> None:
    db.executemany(_TAG, [(key, value, run_id) for key, value in tags.items()])


@contextmanager
def _connected(path: Path, patience: float = _PATIENCE) -> Iterator[sqlite3.Connection]:
    """Open the file, which must exist, for statements that begin and end transactions themselves.

    Raises:
        StoreError: whatever SQLite refuses.
    """
    try:
        with closing(
            sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True, timeout=patience, isolation_level=None,
            )
        ) as db:  # fmt: skip
            db.execute("PRAGMA foreign_keys = ON")
            yield db
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error


def _now() -> int:
    return time.time_ns() // 1_000_000
