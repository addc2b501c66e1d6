"""Reads the head's folder (`cluster/head_folder.py`) over the dashboard, which serves the logs of
Ray's session by name."""

import glob
import threading
import time
from typing import Any

from sgpu_decl.backends.ray.api.cluster_tables import head_node
from sgpu_decl.backends.ray.api.dashboard import Dashboard, Refused
from sgpu_decl.backends.ray.cluster.head_names import HEAD_FOLDER
from sgpu_decl.errors import BackendError
from sgpu_decl.places.file_place import PlaceMissing

ROOT = f"/{HEAD_FOLDER}"
"""What paths of the head's folder begin with, here and in states."""

_FILE, _NAMES = "/api/v0/logs/file", "/api/v0/logs"
_PATIENCE = 600  # seconds that Ray may take for one file
_AGENT = 30.0  # seconds that the dashboard agent of a new head may need to start
_PAUSE = 0.5
_SELDOM = 5.0  # seconds between two looks for the head, while nothing is found on it


class HeadReader:
    """Calls may come from several threads. Each raises BackendError if the dashboard does not
    answer."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self._node: str | None = None
        self._looked_at = 0.0
        self._lock = threading.Lock()

    def find(self, path: str) -> bytes | None:
        """The bytes of a file; None if it is empty, is not there, or cannot be read now. Ray
        answers 500 to each of these, or 200 without a byte (`get_logs` in
        `ray/dashboard/modules/state/state_head.py`; both were seen of missing files)."""
        try:
            content = self.dashboard.read(
                _FILE, node_id=self._head(), filename=_name(path), lines=-1, timeout=_PATIENCE
            )
        except Refused:
            content = b""
        if not content and time.monotonic() - self._looked_at > _SELDOM:
            self._node = None  # Ray answers the same about a node that was the head before
        return content or None

    def read(self, path: str) -> bytes:
        """The bytes of a file; none if it is empty, or cannot be read now. Raises PlaceMissing if
        it is not there."""
        content = self.find(path)
        if content is None:
            if not self.names(path):
                raise PlaceMissing(
                    f"`{path}` is not on the head node of `{self._url}`",
                    hint="what lies there ends with the session of Ray; set `backend.storage` for "
                    "runs that are to outlive it",
                )
            content = self.find(path)  # it came meanwhile
        return content or b""

    def unreadable(self, path: str) -> BackendError:
        """The error about a file that is there, and has no bytes where it should have some."""
        return self._unavailable(f"`{path}` on the head node of `{self._url}` cannot be read now")

    def names(self, path: str, below: str = "") -> list[str]:
        """The paths that match: `path` itself, and `below` it a pattern. Folders end with a
        slash. Ray answers 500 until the dashboard agent of a node that was just started is known
        (`list_logs` in `ray/util/state/state_manager.py`)."""
        pattern = f"{glob.escape(_name(path))}{below}"
        deadline = time.monotonic() + _AGENT
        while True:
            try:
                answer = self.dashboard.get(_NAMES, node_id=self._head(), glob=pattern)
                break
            except Refused as error:
                if time.monotonic() > deadline:
                    summary = f"the head node does not list its files: {error.message}"
                    raise self._unavailable(summary) from error
                self._node = None  # another node may be the head now
            time.sleep(_PAUSE)
        groups: dict[str, Any] = self.dashboard.part(_NAMES, answer, "data.result", dict)
        for group, names in groups.items():
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                what = f"no list of names in `{group}` of `data.result`"
                raise self.dashboard.unknown_answer(_NAMES, what)
        found = {name for names in groups.values() for name in names}
        return sorted(f"{ROOT}{name.removeprefix(HEAD_FOLDER)}" for name in found)

    def _unavailable(self, summary: str) -> BackendError:
        error = BackendError(
            summary,
            hint="try again in a minute; see that the dashboard agent of the head node runs",
            code="unavailable",
        )
        error.retryable = True
        return error

    @property
    def _url(self) -> str:
        return self.dashboard.address.url

    def _head(self) -> str:
        with self._lock:
            if self._node is None:
                head = head_node(self.dashboard)
                if head is None:
                    error = BackendError(
                        f"`{self._url}` knows no head node that is alive",
                        hint="try again in a minute",
                        code="unavailable",
                    )
                    error.retryable = True
                    raise error
                self._node, self._looked_at = head, time.monotonic()
            return self._node


def below_root(path: str) -> str:
    """A path relative to the head's folder."""
    return path.removeprefix(ROOT).lstrip("/")


def _name(path: str) -> str:
    """What Ray calls a path."""
    return path.removeprefix("/")
