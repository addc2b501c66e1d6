"""Files of a workspace behind one small door: those below `/Workspace`, and those of volumes.

An upload is one request, or ends with one that makes the file visible: a file is there whole, or it
is not there.
"""

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast
from urllib.parse import quote

from sgpu_decl.backends.databricks.complaints import Unknown
from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.databricks.counting import Counting
from sgpu_decl.environments.progress import Sent
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json

__all__ = ["Found", "RemoteFiles", "VolumeFiles", "WorkspaceFiles", "files_at"]

_CHUNK = 1 << 20
MOST = 500 << 20  # bytes of a workspace file
_WRITING = {
    "permission_denied": "ask who owns it to let you write there, or set `backend.staging` to a "
    "folder where you may",
    "remote_missing": "make the volume or the folder that it names, or set `backend.staging` to "
    "one that is there",
    "remote_refused": "move away what is there, or set another `backend.staging`",
}
"""What to do where the staging folder takes nothing."""


def _nobody(_: int) -> None:
    """For uploads that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something in a folder; `size` in bytes, 0 of a folder; `modified` in seconds of the epoch, 0
    where it is not known."""

    name: str
    folder: bool
    size: int = 0
    modified: float = 0.0


class RemoteFiles(Protocol):
    """Paths are absolute. Every call raises BackendError where the workspace fails."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; `None` where there is none."""

    def put(self, path: str, content: bytes | Path, sent: Sent = ...) -> None:
        """Write a file, over what was there; its folder must be there. `sent` is told how many
        bytes of it are under way, where it is a file."""

    def get(self, path: str) -> bytes:
        """Read a file. Raises Unknown where it is not there."""

    def fetch(self, path: str, file: Path) -> None:
        """Read a file into one here, however large it is. As `get`."""

    def list(self, folder: str) -> tuple[Found, ...]:
        """What lies in a folder, by name; nothing where it is not there."""

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; harmless where it is not there."""


def files_at(connection: Connection, path: str) -> RemoteFiles:
    """The files that a path is among."""
    if path.startswith("/Volumes/"):
        return VolumeFiles(connection)
    return WorkspaceFiles(connection)


class WorkspaceFiles:
    """See `RemoteFiles`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def size(self, path: str) -> int | None:
        try:
            found = self._connection.ask(
                f"looking at `{path}`", "/api/2.0/workspace/get-status", path=path
            )
        except Unknown:
            return None
        if found.get("object_type") != "FILE":
            raise BackendError(
                f"`{path}` is no file but a {str(found.get('object_type')).lower()}",
                hint="move it away, or set another `backend.staging`",
                code="staging_taken",
            )
        return _number(found.get("size"))

    def put(self, path: str, content: bytes | Path, sent: Sent = _nobody) -> None:
        _refuse_large(path, content)
        client = self._connection.client
        doing = f"uploading `{path}`"
        with self._connection.explained(doing, _WRITING), _opened(content, sent) as stream:
            client.api_client.do(
                "POST",
                f"/api/2.0/workspace-files/import-file/{quote(path.lstrip('/'), safe='')}",
                query={"overwrite": "true"},
                headers={"Content-Type": "application/octet-stream"},
                data=stream,
            )

    def get(self, path: str) -> bytes:
        with self._connection.explained(f"reading `{path}`"), self._contents(path) as stream:
            return bytes(stream.read())

    def fetch(self, path: str, file: Path) -> None:
        with self._connection.explained(f"reading `{path}`"), self._contents(path) as stream:
            _save(stream, file)

    def _contents(self, path: str) -> BinaryIO:
        answer = self._connection.client.api_client.do(
            "GET",
            "/api/2.0/workspace/export",
            query={"path": path, "format": "AUTO", "direct_download": "true"},
            raw=True,
        )
        return cast("BinaryIO", answer["contents"])

    def list(self, folder: str) -> tuple[Found, ...]:
        try:
            answer = self._connection.ask(
                f"looking into `{folder}`", "/api/2.0/workspace/list", path=folder
            )
        except Unknown:
            return ()
        objects = answer.get("objects")
        found = objects if isinstance(objects, list) else []
        return tuple(_found(it) for it in found if isinstance(it, dict))

    def make_folder(self, folder: str) -> None:
        client = self._connection.client
        with self._connection.explained(f"making the folder `{folder}`", _WRITING):
            client.api_client.do("POST", "/api/2.0/workspace/mkdirs", body={"path": folder})

    def delete(self, path: str) -> None:
        try:
            self._connection.tell(
                f"deleting `{path}`",
                "/api/2.0/workspace/delete",
                {"path": path, "recursive": True},
            )
        except Unknown:
            return


class VolumeFiles:
    """See `RemoteFiles`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def size(self, path: str) -> int | None:
        client = self._connection.client
        try:
            with self._connection.explained(f"looking at `{path}`"):
                return client.files.get_metadata(path).content_length or 0
        except Unknown:
            return None

    def put(self, path: str, content: bytes | Path, sent: Sent = _nobody) -> None:
        client = self._connection.client
        doing = f"uploading `{path}`"
        try:
            with self._connection.explained(doing, _WRITING), _opened(content, sent) as stream:
                client.files.upload(path, stream, overwrite=True)
        except ValueError as error:  # the SDK's: links to the storage are refused as expired, say
            raise BackendError(
                f"{doing}: `{self._connection.host}` gives no way to send it: {error}",
                hint="see that this machine's clock is right, and try again",
                code="remote_broken",
            ) from error

    def get(self, path: str) -> bytes:
        with self._connection.explained(f"reading `{path}`"), self._contents(path) as stream:
            return bytes(stream.read())

    def fetch(self, path: str, file: Path) -> None:
        with self._connection.explained(f"reading `{path}`"), self._contents(path) as stream:
            _save(stream, file)

    def _contents(self, path: str) -> BinaryIO:
        return self._connection.client.files.download(path).contents or io.BytesIO()

    def list(self, folder: str) -> tuple[Found, ...]:
        client = self._connection.client
        try:
            with self._connection.explained(f"looking into `{folder}`"):
                found = list(client.files.list_directory_contents(folder))
        except Unknown:
            return ()
        return tuple(
            Found(
                name=str(it.name),
                folder=bool(it.is_directory),
                size=it.file_size or 0,
                modified=(it.last_modified or 0) / 1000,
            )
            for it in sorted(found, key=lambda it: str(it.name))
        )

    def make_folder(self, folder: str) -> None:
        client = self._connection.client
        with self._connection.explained(f"making the folder `{folder}`", _WRITING):
            client.files.create_directory(folder)

    def delete(self, path: str) -> None:
        client = self._connection.client
        below = self.list(path)
        for one in below:
            if one.folder:
                self.delete(f"{path}/{one.name}")
            else:
                with self._connection.explained(f"deleting `{path}/{one.name}`"):
                    client.files.delete(f"{path}/{one.name}")
        try:
            with self._connection.explained(f"deleting `{path}`"):
                if below or self.size(path) is None:
                    client.files.delete_directory(path)
                else:
                    client.files.delete(path)
        except Unknown:
            return


def _save(stream: BinaryIO, file: Path) -> None:
    file.touch(mode=0o600)
    with file.open("wb") as target:
        shutil.copyfileobj(stream, target, _CHUNK)


def _refuse_large(path: str, content: bytes | Path) -> None:
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size > MOST:
        raise BackendError(
            f"`{path}` would have {size:,} bytes, and workspace files have at most {MOST:,}",
            hint="set `backend.staging` to a folder of a volume (`/Volumes/…`), or leave large "
            "files out with `.sgpuignore`",
            code="staging_too_large",
        )


@contextmanager
def _opened(content: bytes | Path, sent: Sent) -> Iterator[BinaryIO]:
    with io.BytesIO(content) if isinstance(content, bytes) else Counting(content, sent) as stream:
        yield stream


def _found(raw: dict[str, Json]) -> Found:
    return Found(
        name=str(raw.get("path")).rpartition("/")[2],
        folder=raw.get("object_type") == "DIRECTORY",
        size=_number(raw.get("size")),
        modified=_number(raw.get("modified_at")) / 1000,
    )


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0
