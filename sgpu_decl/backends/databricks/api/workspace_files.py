"""Files of a workspace as places: those below `/Workspace`, and those of volumes.

An upload is one request, or ends with one that makes the file visible: a file is there whole, or it
is not there.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote
from uuid import uuid4

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected, says_too_large
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import (
    PlaceEntry,
    PlaceMissing,
    byte_count,
    ignore_bytes,
    save_stream,
    upload_stream,
)

VOLUMES = "/Volumes/"
"""What paths of volumes begin with."""

MOST = 500 << 20  # bytes of a workspace file
MOST_AS_FORM = 450_000_000  # bytes that `workspace/import` was seen to take (evidence: A5)
_NO_SUCH_API = frozenset({"ENDPOINT_NOT_FOUND", "FEATURE_DISABLED", "NOT_IMPLEMENTED"})
LISTING_LAG = 0.5
"""Seconds after which a list is taken to have what was written (evidence: C24)."""

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
    """What both kinds of files share. `advice` gives the next steps by the codes of errors, where
    the files are others than those of a staging folder."""

    lag = LISTING_LAG

    def __init__(
        self, connection: Connection, advice: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        self._connection = connection
        self._advice = advice

    def now(self) -> float:
        return self._connection.now()

    def get(self, path: str) -> bytes:
        with self.explained(f"reading `{path}`"), self.contents(path) as stream:
            return bytes(stream.read())

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        with self.explained(f"reading `{path}`"), self.contents(path) as stream:
            save_stream(stream, file, received)

    def create(self, path: str, content: bytes) -> bool:
        """See `FilePlace`. The file is read back: should two writers be told that theirs is there,
        one of them is right."""
        from databricks.sdk.errors.platform import ResourceConflict

        try:
            with self.explained(f"adding `{path}`", writing=True):
                self.upload_new(path, content)
        except BackendError as error:
            if isinstance(error.__cause__, ResourceConflict):
                return False
            raise
        try:
            return self.get(path) == content
        except PlaceMissing as error:
            unseen = BackendError(
                f"`{self._connection.host}` does not show `{path}`, which was just added",
                hint="try again",
                code="remote_broken",
            )
            unseen.retryable = True
            raise unseen from error

    def explained(self, doing: str, *, writing: bool = False) -> AbstractContextManager[None]:
        """See `sdk_errors.explained`."""
        return self._connection.explained(doing, self.hints(writing=writing))

    def hints(self, *, writing: bool = False) -> Mapping[str, str]:
        """The next steps by the codes of errors."""
        if self._advice is not None:
            return self._advice()
        return _WRITING if writing else {}

    @abstractmethod
    def upload_new(self, path: str, content: bytes) -> None:
        """Send a file that overwrites nothing. Raises what the SDK does."""

    @abstractmethod
    def contents(self, path: str) -> BinaryIO:
        """A stream of a file. Raises what the SDK does."""


class WorkspacePlace(_Files):
    """See `FilePlace`."""

    part: int | None = 8 << 20  # they are read up to 10 MiB (evidence: A5)

    def stat(self, path: str) -> PlaceEntry | None:
        api = "/api/2.0/workspace/get-status"
        found = self._connection.find(f"looking at `{path}`", api, self.hints(), path=path)
        return None if found is None else _entry(found)

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        _refuse_large(path, byte_count(content))
        with self.explained(f"uploading `{path}`", writing=True):
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

    def contents(self, path: str) -> BinaryIO:
        """A stream of a file. Raises what the SDK does."""
        answer = self._connection.client.api_client.do(
            "GET",
            "/api/2.0/workspace/export",
            query={"path": path, "format": "AUTO", "direct_download": "true"},
            raw=True,
        )
        return cast("BinaryIO", answer["contents"])

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        api = "/api/2.0/workspace/list"
        answer = self._connection.find(f"looking into `{folder}`", api, self.hints(), path=folder)
        entries = map(_entry, (answer or {}).get("objects") or ())
        return tuple(entry for entry in entries if entry.name > after)

    def make_folder(self, folder: str) -> None:
        self._connection.tell(
            f"making the folder `{folder}`",
            "/api/2.0/workspace/mkdirs",
            {"path": folder},
            hints=self.hints(writing=True),
        )

    def delete(self, path: str) -> None:
        with suppress(PlaceMissing):
            self._connection.tell(
                f"deleting `{path}`",
                "/api/2.0/workspace/delete",
                {"path": path, "recursive": True},
                hints=self.hints(),
            )


class VolumePlace(_Files):
    """See `FilePlace`."""

    part: int | None = None

    def stat(self, path: str) -> PlaceEntry | None:
        files, name = self._connection.client.files, path.rpartition("/")[2]
        # A folder is refused as being no file.
        with suppress(PlaceMissing, Rejected), self.explained(f"looking at `{path}`"):
            found = files.get_metadata(path)
            date = found.last_modified
            return PlaceEntry(
                name=name,
                folder=False,
                size=found.content_length or 0,
                modified=parsedate_to_datetime(date).timestamp() if date else 0.0,
            )
        with suppress(PlaceMissing), self.explained(f"looking at `{path}`"):
            files.get_directory_metadata(path)
            return PlaceEntry(name=name, folder=True)
        return None

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        client = self._connection.client
        doing = f"uploading `{path}`"
        try:
            with self.explained(doing, writing=True), upload_stream(content, sent) as stream:
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

    def contents(self, path: str) -> BinaryIO:
        """A stream of a file. Raises what the SDK does."""
        return self._connection.client.files.download(path).contents or io.BytesIO()

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        files = self._connection.client.files
        try:
            with self.explained(f"looking into `{folder}`"):
                entries = list(files.list_directory_contents(folder))
        except PlaceMissing:
            return ()
        found = (
            PlaceEntry(
                name=str(item.name),
                folder=bool(item.is_directory),
                size=item.file_size or 0,
                # To the second, as of a single file (RFC 9110, 8.8.2).
                modified=float((item.last_modified or 0) // 1000),
            )
            for item in sorted(entries, key=lambda item: str(item.name))
        )
        return tuple(entry for entry in found if entry.name > after)

    def make_folder(self, folder: str) -> None:
        with self.explained(f"making the folder `{folder}`", writing=True):
            self._connection.client.files.create_directory(folder)

    def delete(self, path: str) -> None:
        files = self._connection.client.files
        entries = self.list(path)
        for entry in entries:
            if entry.folder:
                self.delete(f"{path}/{entry.name}")
                continue
            with self.explained(f"deleting `{path}/{entry.name}`"):
                files.delete(f"{path}/{entry.name}")
        with suppress(PlaceMissing), self.explained(f"deleting `{path}`"):
            found = None if entries else self.stat(path)
            if found is None or found.folder:
                files.delete_directory(path)
            else:
                files.delete(path)


def _entry(item: Mapping[str, Any]) -> PlaceEntry:
    """Of an object of the workspace, as its API describes it."""
    return PlaceEntry(
        name=str(item["path"]).rpartition("/")[2],
        folder=item.get("object_type") in ("DIRECTORY", "REPO"),
        size=int(item.get("size") or 0),
        modified=int(item.get("modified_at") or 0) / 1000,
    )


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


class UploadForm(io.RawIOBase):
    """A form with one file, `multipart/form-data` (RFC 7578), read piece by piece: `requests` makes
    such forms in memory, also where the file has hundreds of megabytes. It is a stream that knows
    its length, and can be read again from its beginning, as the SDK does where it tries once more.

    Args:
        fields: the texts.
        name: of the field that has the file.
        file: read from its beginning.
    """

    def __init__(self, fields: Mapping[str, str], name: str, file: BinaryIO) -> None:
        super().__init__()
        boundary = uuid4().hex
        texts = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n'
            for field, text in fields.items()
        )
        head = (
            f'{texts}--{boundary}\r\nContent-Disposition: form-data; name="{name}"; '
            f'filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        )
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._head, self._tail = head.encode(), f"\r\n--{boundary}--\r\n".encode()
        self._file = file
        self._file_size = file.seek(0, io.SEEK_END)
        self._at = 0

    def __len__(self) -> int:
        return len(self._head) + self._file_size + len(self._tail)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self)}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        remaining = len(self) - self._at if size is None or size < 0 else size
        data = b""
        while remaining and (piece := self._piece(remaining)):
            data += piece
            remaining -= len(piece)
            self._at += len(piece)
        return data

    def _piece(self, size: int) -> bytes:
        """At most so many bytes from where it is, of one of the three."""
        at = self._at
        if at < len(self._head):
            return self._head[at : at + size]
        at -= len(self._head)
        if at < self._file_size:
            self._file.seek(at)
            return self._file.read(size)
        at -= self._file_size
        return self._tail[at : at + size]
