"""Sends messages to the depot of a cluster, and starts it when it does not run.
`cluster/depot.py` says what they are."""

import hashlib
import threading
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from sgpu_decl.backends.ray.api.cluster_tables import find_job, living_nodes
from sgpu_decl.backends.ray.cluster.head_names import ANSWERS, DEPOT, DEPOT_FILE, DEPOT_ID
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE
from sgpu_decl.backends.ray.head.head_reader import ROOT, HeadReader, below_root
from sgpu_decl.backends.ray.launching.jobs import job_package, put_value, submit_job
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.places.file_place import PlaceMissing

_SHORTEST, _LONGEST = 0.005, 0.1  # seconds between two looks for an answer
_SILENT = 2.0  # seconds without an answer, after which the depot may have ended
_PATIENCE = 120.0  # seconds for one answer
_STARTS = 3  # of depots, for one answer


class DepotClient:
    """For one head. Calls may come from several threads."""

    def __init__(self, reader: HeadReader) -> None:
        self._reader = reader
        self._name = uuid4().hex[:12]
        self._count = 0
        self._lock = threading.Lock()
        self._learning = threading.Lock()
        self._clock_offset: float | None = None
        self._started: str | None = None  # the job of a depot

    def now(self) -> float:
        """The time by the clock of the head."""
        self._learn_clock()
        return time.time() + (self._clock_offset or 0.0)

    def ask(
        self, do: str, path: str = "", data: bytes | None = None, **fields: Json
    ) -> Mapping[str, Any]:
        """Have the depot do something; return its answer. Raises BackendError."""
        return self.await_answer(self.send(do, path, data, **fields))

    def send(self, do: str, path: str = "", data: bytes | None = None, **fields: Json) -> str:
        """Send a message; return its id, for `await_answer`."""
        self._learn_clock()
        message = {"do": do, "path": below_root(path), **fields}
        return self._send({**message, "sent": self.now()}, data)

    def send_piece(self, data: bytes, **fields: Json) -> str:
        """Send a piece of a file: it may be long on its way."""
        self._learn_clock()
        return self._send({"do": "piece", **fields}, data)

    def await_answer(self, message: str) -> Mapping[str, Any]:
        """Wait until a message was answered, and return the answer. Raises BackendError if it was
        refused, or is not answered."""
        answer, path = self._answer(message), _answer_path(message)
        dashboard = self._reader.dashboard
        error = dashboard.optional_part(path, answer, "error", dict)
        if error is not None:
            code = dashboard.part(path, error, "code", str)
            summary = f"the depot on the head node of `{self._url}` refuses a request: "
            summary += dashboard.optional_part(path, error, "message", str) or code
            if code == PlaceMissing.code:
                raise PlaceMissing(summary, hint="apply again")
            hint = f"apply again; the log of the job `{DEPOT_ID}...` in the dashboard may say more"
            if code == "no_room":
                hint = "free space on the disk of the head node, with `sgpu gc` for example"
            raise BackendError(summary, hint=hint, code=error["code"])
        return answer

    @property
    def _url(self) -> str:
        return self._reader.dashboard.address.url

    def _learn_clock(self) -> None:
        """Learn how far the clock of the head is ahead of this one, from a first answer."""
        if self._clock_offset is None:
            with self._learning:
                if self._clock_offset is None:
                    self._start_depot()
                    message = self._send({"do": "hello"}, None)
                    dashboard, answer = self._reader.dashboard, self._answer(message)
                    now = dashboard.part(_answer_path(message), answer, "now", float)
                    self._clock_offset = now - time.time()

    def _send(self, message: Mapping[str, Json], data: bytes | None) -> str:
        with self._lock:
            self._count += 1
            name = f"{self._name}-{self._count:06}"
        data = data or b""
        message = {**message, "sha256": hashlib.sha256(data).hexdigest()}
        content = canonical(message).encode() + b"\n" + data
        put_value(self._reader.dashboard, f"{DEPOT_ID}{name}", content)
        return name

    def _answer(self, message: str) -> dict[str, Any]:
        begun = asked = time.monotonic()
        pause, starts = _SHORTEST, 0
        path = _answer_path(message)
        while (content := self._reader.find(path)) is None:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
            now = time.monotonic()
            if now - asked > _SILENT:
                asked = now
                if starts < _STARTS:
                    starts += self._start_depot()
            if now - begun > _PATIENCE:
                error = BackendError(
                    f"the depot on the head node of `{self._url}` has not answered for "
                    f"{_PATIENCE:g} s",
                    hint=f"see the logs of the jobs `{DEPOT_ID}...` in the dashboard of Ray",
                    code="unavailable",
                )
                error.retryable = True
                raise error
        dashboard = self._reader.dashboard
        answer = dashboard.parsed(path, content)
        if not isinstance(answer, dict):
            raise dashboard.unknown_answer(path, "no answer of the depot")
        return answer

    def _start_depot(self) -> bool:
        """Start a depot, unless one runs; return whether that was necessary. After a head with
        fault tolerance came back, jobs that ran on it stay RUNNING until somebody submits one, on
        a node that is not alive (tried with 2.60)."""
        dashboard = self._reader.dashboard
        for known in (self._started, self._noted_job()):
            job = find_job(dashboard, known) if known else None
            if job is not None and job["status"] in ACTIVE:
                node = job.get("driver_node_id")
                if not node or node in living_nodes(dashboard):
                    return False
        name = f"{DEPOT_ID}{uuid4().hex[:12]}"
        package, content = job_package({DEPOT_FILE: canonical({"v": 1, "job": name}).encode()})
        put_value(dashboard, package, content)
        submit_job(dashboard, name, package)
        self._started = name
        return True

    def _noted_job(self) -> str | None:
        """The job of the depot that started last; None if there was none."""
        dashboard, path = self._reader.dashboard, f"{ROOT}/{DEPOT}/{DEPOT_FILE}"
        content = self._reader.find(path)
        if content is None:
            return None
        return dashboard.part(path, dashboard.parsed(path, content), "job", str)


def _answer_path(message: str) -> str:
    return f"{ROOT}/{ANSWERS}/{message}"
