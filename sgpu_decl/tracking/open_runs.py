"""MLflow runs that are still open in their store.

Each tracker has a locked file below `.sgpu/mlflow-open/` until its store knows how the attempt
ended. If a tracker is killed, or its server is down at the end, the next command closes the run.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import OPEN_RUNS
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.tracking.mlflow_status import TrackedOutcome, outcome
from sgpu_decl.tracking.stores.choice import needs_no_mlflow, open_tracking_store
from sgpu_decl.tracking.stores.store_protocol import StoreError
from sgpu_decl.tracking.tracker_files import change_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

_ACTIVE = frozenset({"queued", "staging", "starting", "running", "stopping"})


@dataclass(slots=True)
class OpenRun:
    """The file of one run: `{"folder", "run_id", "tracking_uri", "end"}`; it is locked."""

    path: Path
    descriptor: int
    data: dict[str, Json]

    @classmethod
    @contextmanager
    def begin(cls, home: Path, token: str, folder: Path) -> Iterator[OpenRun]:
        """Hold the file of a run that is about to be made.

        Args:
            home: the folder that `mlflow-open` lies in.
            token: the attempt's.
            folder: the attempt's.

        Raises:
            OSError: it cannot be written.
        """
        below = home / OPEN_RUNS
        private_folder(below)
        path = below / f"{token}.json"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            entry = cls(path, descriptor, {"folder": str(folder)})
            entry._write()
            yield entry
        finally:
            os.close(descriptor)

    def note_created(self, run_id: str, uri: str) -> None:
        self.data.update(run_id=run_id, tracking_uri=uri)
        self._write()

    def note_end(self, end: TrackedOutcome) -> None:
        """Note how the attempt ended, since its folder may be deleted before the run is closed."""
        self.data["end"] = {**asdict(end), "tags": dict(end.tags)}
        self._write()

    def forget(self) -> None:
        """Delete the file: the store knows the end, or has no such run."""
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        data = json.dumps(self.data).encode()
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, data, 0)


def close_runs(
    home: Path, *, environ: Mapping[str, str], by_client: bool = False
) -> tuple[str, ...]:
    """Close the open MLflow runs of attempts that have ended; return the URIs of their stores. A
    store that does not answer is asked only once.

    Args:
        home: the project's `.sgpu` folder.
        environ: has the credentials of servers.
        by_client: also close runs in stores that need MLflow's own client, which takes seconds.
    """
    try:
        names = sorted(os.listdir(home / OPEN_RUNS))
    except OSError:
        return ()
    away: set[str] = set()
    uris = (_close(home / OPEN_RUNS / name, environ, away, by_client=by_client) for name in names)
    return tuple(uri for uri in uris if uri is not None)


def _close(
    path: Path, environ: Mapping[str, str], away: set[str], *, by_client: bool
) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None  # its tracker has just finished, or it is another user's
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None  # its tracker lives, or another command is at it
    else:
        return _close_locked(OpenRun(path, descriptor, {}), environ, away, by_client=by_client)
    finally:
        os.close(descriptor)


def _close_locked(
    entry: OpenRun, environ: Mapping[str, str], away: set[str], *, by_client: bool
) -> str | None:
    try:
        entry.data = dict(json.loads(os.pread(entry.descriptor, 1 << 20, 0)))
    except ValueError:
        entry.forget()  # cut short by a power cut before there was a run
        return None
    folder, uri = Path(str(entry.data.get("folder"))), entry.data.get("tracking_uri")
    end = _end(entry.data.get("end"), folder)
    if end is None or uri in away:
        return None
    if not isinstance(uri, str):
        entry.forget()
        return None
    if not (by_client or needs_no_mlflow(uri, environ)):
        return None
    try:
        open_tracking_store(uri, environ=environ, patience=1.0).finish(
            str(entry.data["run_id"]), end
        )
    except StoreError:
        away.add(uri)
        return None
    with suppress(OSError):  # if this cannot be written, the run is closed again later
        change_record(folder, open=None)
        entry.forget()
    return uri


def _end(recorded: Json, folder: Path) -> TrackedOutcome | None:
    """How the attempt ended, None while it is active."""
    if isinstance(recorded, Mapping):
        return TrackedOutcome(**recorded)  # type: ignore[arg-type]
    if not folder.is_dir():
        return outcome({})
    truth = read_attempt(folder)
    return None if truth["state"] in _ACTIVE else outcome(truth)
