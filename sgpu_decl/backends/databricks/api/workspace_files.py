"""Files of a workspace, as `RemoteFiles`: those below `/Workspace`, and those of volumes.

An upload is one request, or ends with one that makes the file visible: a file is there whole, or it
is not there.
"""

import io
from abc import ABC, abstractmethod
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import says_too_large
from sgpu_decl.backends.remote.files import (
    RemoteEntry,
    RemoteMissing,
    byte_count,
    ignore_bytes,
    save_stream,
    upload_stream,
)
from sgpu_decl.backends.remote.upload_form import UploadForm
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent

VOLUMES = "/Volumes/"
"""What paths of volumes begin with."""

MOST = 500 << 20  # bytes of a workspace file
MOST_AS_FORM = 450_000_000  # bytes that `workspace/import` was seen to take (evidence: A5)
_NO_SUCH_API = frozenset({"ENDPOINT_NOT_FOUND", "FEATURE_DISABLED", "NOT_IMPLEMENTED"})
_WRITING = {
    "permission_denied": "ask who owns it to let you write there, or set `backend.staging` to a "
    "folder where you may",
    "remote_missing": "make the volume or the folder that it names, or set `backend.staging` to "
    "one that is there",
    "remote_refused": "move away what is there, or set another `backend.staging`",
}
"""What to do where the staging folder takes nothing."""


def home_of(user: str) -> str:
    """The staging folder where the YAML names none."""
    return f"/Workspace/Users/{user}/.sgpu"


class _Files(ABC):
    """What both kinds of files share."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def now(self) -> float:
        return self._connection.now()

    def get(self, path: str) -> bytes:
        with self._connection.explained(f"reading `{path}`"), self.contents(path) as stream:
            return bytes(stream.read())

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        with self._connection.explained(f"reading `{path}`"), self.contents(path) as stream:
            save_stream(stream, file, received)

    def create(self, path: str, content: bytes) -> bool:
        """Write a file that is not there yet; false if anything is there. Of several that do so at
        once, the workspace lets one. Raises RemoteMissing where its folder is not there, which a
        volume may make instead."""
        from databricks.sdk.errors.platform import ResourceConflict

        try:
            with self._connection.explained(f"adding `{path}`"):
                self.upload_new(path, content)
        except BackendError as error:
            if isinstance(error.__cause__, ResourceConflict):
                return False
            raise
        return True

    @abstractmethod
    def upload_new(self, path: str, content: bytes) -> None:
        """Send a file that overwrites nothing. Raises what the SDK does."""

    @abstractmethod
    def contents(self, path: str) -> BinaryIO:
        """A stream of a file. Raises what the SDK does."""


class WorkspaceFiles(_Files):
    """See `RemoteFiles`."""

    part: int | None = 8 << 20  # they are read up to 10 MiB (evidence: A5)

    def size(self, path: str) -> int | None:
        status = self._status(path)
        if status is not None and status.get("object_type") != "FILE":
            raise BackendError(
                f"`{path}` is no file but a {str(status.get('object_type')).lower()}",
                hint="move it away, or set another `backend.staging`",
                code="staging_taken",
            )
        return None if status is None else int(status.get("size") or 0)

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        _refuse_large(path, byte_count(content))
        with self._connection.explained(f"uploading `{path}`", _WRITING):
            self._upload(path, content, sent, overwrite=True)

    def upload_new(self, path: str, content: bytes) -> None:
        """Send a file that overwrites nothing. Raises what the SDK does: ResourceConflict for a
        path that is taken, RESOURCE_ALREADY_EXISTS of `workspace/import`, or 409 of `import-file`,
        on which the lock of the platform's own client stands.

        Sources: https://docs.databricks.com/api/workspace/workspace/import,
        https://github.com/databricks/cli/blob/main/libs/filer/workspace_files_client.go,
        https://github.com/databricks/cli/blob/main/libs/locker/locker.go
        """
        self._upload(path, content, ignore_bytes, overwrite=False)

    def _upload(self, path: str, content: bytes | Path, sent: Sent, *, overwrite: bool) -> None:
        from databricks.sdk.errors.base import DatabricksError

        # An empty file is refused by `workspace/import`, and taken by `import-file`.
        if not 0 < byte_count(content) <= MOST_AS_FORM:
            self.put_raw(path, content, sent, overwrite=overwrite)
            return
        try:
            self.put_form(path, content, sent, overwrite=overwrite)
        except DatabricksError as error:
            if error.error_code not in _NO_SUCH_API and not says_too_large(error):
                raise
            self.put_raw(path, content, sent, overwrite=overwrite)

    def put_form(
        self,
        path: str,
        content: bytes | Path,
        sent: Sent = ignore_bytes,
        *,
        overwrite: bool = True,
    ) -> None:
        """By the API that the platform's own clients use (evidence: A5). Raises what the SDK
        does."""
        form = {"path": path, "format": "AUTO", "overwrite": _flag(overwrite=overwrite)}
        with upload_stream(content, sent) as stream, UploadForm(form, "content", stream) as body:
            self._connection.client.api_client.do(
                "POST",
                "/api/2.0/workspace/import",
                headers={"Content-Type": body.content_type},
                data=body,
            )

    def put_raw(
        self,
        path: str,
        content: bytes | Path,
        sent: Sent = ignore_bytes,
        *,
        overwrite: bool = True,
    ) -> None:
        """By the older API, which is being deprecated. Raises what the SDK does."""
        with upload_stream(content, sent) as stream:
            self._connection.client.api_client.do(
                "POST",
                f"/api/2.0/workspace-files/import-file/{quote(path.lstrip('/'), safe='')}",
                query={"overwrite": _flag(overwrite=overwrite)},
                headers={"Content-Type": "application/octet-stream"},
                data=stream,
            )

    def modified(self, path: str) -> float | None:
        """When a file was written, in seconds of the epoch by the workspace's clock; None where it
        is not there."""
        status = self._status(path)
        return None if status is None else int(status.get("modified_at") or 0) / 1000

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder, and the user may see it."""
        status = self._status(path)
        return status is not None and status.get("object_type") in ("DIRECTORY", "REPO")

    def contents(self, path: str) -> BinaryIO:
        """A stream of a file. Raises what the SDK does."""
        answer = self._connection.client.api_client.do(
            "GET",
            "/api/2.0/workspace/export",
            query={"path": path, "format": "AUTO", "direct_download": "true"},
            raw=True,
        )
        return cast("BinaryIO", answer["contents"])

    def _status(self, path: str) -> dict[str, Any] | None:
        api = "/api/2.0/workspace/get-status"
        return self._connection.find(f"looking at `{path}`", api, path=path)

    def list(self, folder: str) -> tuple[RemoteEntry, ...]:
        answer = self._connection.find(
            f"looking into `{folder}`", "/api/2.0/workspace/list", path=folder
        )
        return tuple(
            RemoteEntry(
                name=str(item["path"]).rpartition("/")[2],
                folder=item.get("object_type") == "DIRECTORY",
                size=item.get("size") or 0,
                modified=(item.get("modified_at") or 0) / 1000,
            )
            for item in (answer or {}).get("objects") or ()
        )

    def make_folder(self, folder: str) -> None:
        self._connection.tell(
            f"making the folder `{folder}`",
            "/api/2.0/workspace/mkdirs",
            {"path": folder},
            hints=_WRITING,
        )

    def delete(self, path: str) -> None:
        with suppress(RemoteMissing):
            self._connection.tell(
                f"deleting `{path}`",
                "/api/2.0/workspace/delete",
                {"path": path, "recursive": True},
            )


class VolumeFiles(_Files):
    """See `RemoteFiles`."""

    part: int | None = None

    def size(self, path: str) -> int | None:
        client = self._connection.client
        try:
            with self._connection.explained(f"looking at `{path}`"):
                return client.files.get_metadata(path).content_length or 0
        except RemoteMissing:
            return None

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        client = self._connection.client
        doing = f"uploading `{path}`"
        try:
            with (
                self._connection.explained(doing, _WRITING),
                upload_stream(content, sent) as stream,
            ):
                client.files.upload(path, stream, overwrite=True)
        except ValueError as error:  # the SDK's: links to the storage are refused as expired, say
            raise BackendError(
                f"{doing}: `{self._connection.host}` gives no way to send it: {error}",
                hint="see that this machine's clock is right, and try again",
                code="remote_broken",
            ) from error

    def upload_new(self, path: str, content: bytes) -> None:
        """Send a file that overwrites nothing. Raises what the SDK does: ResourceConflict for a
        path that is taken.

        Sources: https://docs.databricks.com/api/workspace/files/upload,
        https://github.com/databricks/cli/blob/main/libs/filer/files_client.go
        """
        self._connection.client.files.upload(path, io.BytesIO(content), overwrite=False)

    def modified(self, path: str) -> float | None:
        """When a file was written, to the second; see `WorkspaceFiles.modified`."""
        client = self._connection.client
        try:
            with self._connection.explained(f"looking at `{path}`"):
                date = client.files.get_metadata(path).last_modified
        except RemoteMissing:
            return None
        return parsedate_to_datetime(date).timestamp() if date else 0.0

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder, and the user may see it."""
        client = self._connection.client
        try:
            with self._connection.explained(f"looking at `{path}`"):
                client.files.get_directory_metadata(path)
        except RemoteMissing:
            return False
        return True

    def contents(self, path: str) -> BinaryIO:
        """A stream of a file. Raises what the SDK does."""
        return self._connection.client.files.download(path).contents or io.BytesIO()

    def list(self, folder: str) -> tuple[RemoteEntry, ...]:
        client = self._connection.client
        try:
            with self._connection.explained(f"looking into `{folder}`"):
                entries = list(client.files.list_directory_contents(folder))
        except RemoteMissing:
            return ()
        return tuple(
            RemoteEntry(
                name=str(item.name),
                folder=bool(item.is_directory),
                size=item.file_size or 0,
                modified=(item.last_modified or 0) / 1000,
            )
            for item in sorted(entries, key=lambda item: str(item.name))
        )

    def make_folder(self, folder: str) -> None:
        client = self._connection.client
        with self._connection.explained(f"making the folder `{folder}`", _WRITING):
            client.files.create_directory(folder)

    def delete(self, path: str) -> None:
        files = self._connection.client.files
        entries = self.list(path)
        for entry in entries:
            if entry.folder:
                self.delete(f"{path}/{entry.name}")
                continue
            with self._connection.explained(f"deleting `{path}/{entry.name}`"):
                files.delete(f"{path}/{entry.name}")
        with suppress(RemoteMissing), self._connection.explained(f"deleting `{path}`"):
            if entries or self.size(path) is None:
                files.delete_directory(path)
            else:
                files.delete(path)


def _flag(*, overwrite: bool) -> str:
    return "true" if overwrite else "false"


def _refuse_large(path: str, size: int) -> None:
    if size > MOST:
        raise BackendError(
            f"`{path}` would have {size:,} bytes, and workspace files have at most {MOST:,}",
            hint="set `backend.staging` to a folder of a volume (`/Volumes/…`), or leave large "
            "files out with `.sgpuignore`",
            code="staging_too_large",
        )
