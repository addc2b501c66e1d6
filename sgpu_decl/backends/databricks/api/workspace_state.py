"""Files of a workspace that keep a state: see `StateFiles`."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection, TimeLimits
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES, VolumeFiles, WorkspaceFiles
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.errors import BackendError
from sgpu_decl.storing.stores import SharedPlace

__all__ = ["DatabricksStateFiles", "open_state_files"]

_LIMITS = TimeLimits(silence=20.0, retries=1)
"""Whoever holds a lock that ends in a minute must not wait long for one answer: the state has its
own way of trying again."""


def open_state_files(place: SharedPlace) -> "DatabricksStateFiles":
    """The files of a place, without a request."""
    account = Account(place.profile, place.host, block="state")
    return DatabricksStateFiles(Connection(account, _LIMITS), place)


class DatabricksStateFiles:
    """Below `/Workspace`, or on a volume."""

    def __init__(self, connection: Connection, place: SharedPlace) -> None:
        self._connection = connection
        self._place = place
        self._on_volume = f"{place.address}/".startswith(VOLUMES)
        self._files: VolumeFiles | WorkspaceFiles = (
            VolumeFiles(connection) if self._on_volume else WorkspaceFiles(connection)
        )
        self.most = self._files.part

    @property
    def host(self) -> str:
        return self._connection.host

    @property
    def user(self) -> str:
        return self._connection.user

    def create(self, path: str, content: bytes) -> bool:
        with self._asking():
            return self._files.create(path, content)

    def read(self, path: str) -> bytes | None:
        with self._asking():
            try:
                return self._files.get(path)
            except RemoteMissing:
                return None

    def written_at(self, path: str) -> datetime | None:
        with self._asking():
            seconds = self._files.modified(path)
        return None if seconds is None else self._moment(seconds)

    def files(self, folder: str) -> Mapping[str, datetime]:
        with self._asking():
            found = self._files.list(folder)
        return {item.name: self._moment(item.modified) for item in found if not item.folder}

    def folders(self, folder: str) -> tuple[str, ...]:
        with self._asking():
            return tuple(item.name for item in self._files.list(folder) if item.folder)

    def is_folder(self, path: str) -> bool:
        with self._asking():
            return self._files.is_folder(path)

    def make_folder(self, path: str) -> None:
        with self._asking():
            self._files.make_folder(path)

    def delete(self, path: str) -> None:
        with self._asking():
            self._files.delete(path)

    def now(self) -> datetime:
        with self._asking():
            return datetime.fromtimestamp(self._connection.now(), UTC)

    def making(self, folder: str) -> str:
        words = ["databricks", "workspace", "mkdirs", folder]
        if self._on_volume:
            words = ["databricks", "fs", "mkdirs", f"dbfs:{folder}"]
        if self._place.profile is not None:
            words += ["--profile", self._place.profile]
        return shlex.join(words)

    def _moment(self, seconds: float) -> datetime:
        """Of a single file, a volume says the time to the second (RFC 9110, 8.8.2), and in a list
        to the millisecond."""
        return datetime.fromtimestamp(int(seconds) if self._on_volume else seconds, UTC)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Wait for the login, and give errors a next step that fits a state."""
        self._connection.await_answer()
        try:
            yield
        except RemoteMissing:
            raise
        except BackendError as error:
            advised = BackendError(error.message, hint=self._hint(error), code=error.code)
            advised.retryable = error.retryable
            raise advised from error

    def _hint(self, error: BackendError) -> str | None:
        folder = self._place.address
        match error.code:
            case "permission_denied" if self._on_volume:
                return (
                    f"who owns the volume of `{folder}` gives `{self.user}` the privilege READ "
                    "VOLUME, and WRITE VOLUME to apply"
                )
            case "permission_denied":
                # https://docs.databricks.com/aws/en/security/auth/access-control/#folder-acls
                return (
                    f"who manages `{folder}` gives `{self.user}` Can View, and Can Manage to "
                    "apply: Share (Permissions) in the menu of the folder"
                )
            case "no_room" | "limit_reached" | "staging_taken" | "too_large_to_fetch":
                return "name another folder with `state.path`, one of a volume for instance"
            case _:
                return error.hint
