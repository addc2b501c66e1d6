"""The old file API: `/api/2.0/dbfs/…`, in blocks of 1 MB at most."""

import base64
import binascii
from pathlib import Path

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace import clock
from sgpu_decl.testing.workspace.body import Body
from sgpu_decl.testing.workspace.multipart import form, is_form, texts
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
    missing,
)
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.trees import located, normal, removed

__all__ = ["ROUTES"]

_TABLE = "dbfs"
_BLOCK = 1024 * 1024
_READ = 512 * 1024


def create(request: Request) -> Response:
    """Open a file for writing; it is seen once it is closed."""
    path = _path(request.text("path"))
    _check_place(request.tenant, path, overwrite=request.flag("overwrite"))
    handle = request.tenant.next_id()
    _open_file(request.tenant, handle).touch()
    request.tenant.table(_TABLE).put(handle, {"path": path, "opened": int(clock.now())})
    return Response(json={"handle": handle})


def add_block(request: Request) -> Response:
    """Append a block."""
    handle = _handle(request)
    data = _decoded(request.json.get("data"))
    with request.tenant.lock, _open_file(request.tenant, handle).open("ab") as file:
        file.write(data)
    return Response(json={})


def close(request: Request) -> Response:
    """The file is whole."""
    handle = _handle(request)
    tenant = request.tenant
    with tenant.transaction():
        row = tenant.table(_TABLE).get(handle) or {}
        target = _file(tenant, str(row["path"]))
        target.parent.mkdir(parents=True, exist_ok=True)
        _open_file(tenant, handle).replace(target)
        tenant.table(_TABLE).delete(handle)
    return Response(json={})


def put(request: Request) -> Response:
    """A small file at once: base64 in JSON, or a form of any size."""
    if is_form(request):
        given = texts(request)
        path = _path(given.get("path", ""))
        with form(request) as fields:
            data = fields["contents"].read() if "contents" in fields else b""
        overwrite = given.get("overwrite") == "true"
    else:
        path = _path(request.text("path"))
        data = _decoded(request.json.get("contents", ""))
        overwrite = request.flag("overwrite")
    _check_place(request.tenant, path, overwrite=overwrite)
    target = _file(request.tenant, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    Body(request.server.incoming, data=data).move_to(target)
    return Response(json={})


def mkdirs(request: Request) -> Response:
    """Make folders."""
    path = _path(request.text("path"))
    try:
        _file(request.tenant, path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _exists(path) from None
    return Response(json={})


def delete(request: Request) -> Response:
    """Delete a file or a folder; what is not there is no error."""
    path = _path(request.text("path"))
    file = _file(request.tenant, path)
    if file.is_dir() and any(file.iterdir()) and not request.flag("recursive"):
        raise ApiError(400, "IO_ERROR", f"The directory {path} is not empty.")
    if file.exists():
        removed(file, request.server.incoming)
    return Response(json={})


def move(request: Request) -> Response:
    """Give a file or a folder another path."""
    source = _path(request.text("source_path"))
    target = _path(request.text("destination_path"))
    with request.tenant.lock:
        if _file(request.tenant, target).is_file():
            raise _exists(target)
        file = _existing(request.tenant, source)
        place = _file(request.tenant, target)
        place = place / file.name if place.is_dir() else place
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)
    return Response(json={})


def get_status(request: Request) -> Response:
    """What lies at a path."""
    path = _path(request.asked("path"))
    return Response(json=_info(_existing(request.tenant, path), path))


def list_files(request: Request) -> Response:
    """What lies in a folder, or the file itself."""
    path = _path(request.asked("path"))
    file = _existing(request.tenant, path)
    if not file.is_dir():
        return Response(json={"files": [_info(file, path)]})
    found: list[Json] = [
        _info(child, f"{path.rstrip('/')}/{child.name}") for child in sorted(file.iterdir())
    ]
    return Response(json={"files": found} if found else {})


def read(request: Request) -> Response:
    """A block of a file."""
    path = _path(request.asked("path"))
    offset, length = request.integer("offset", 0), request.integer("length", _READ)
    file = _existing(request.tenant, path)
    if offset < 0 or length < 0 or file.is_dir():
        raise invalid(f"{path} cannot be read at offset {offset} with length {length}")
    if length > _BLOCK:
        raise ApiError(400, "MAX_READ_SIZE_EXCEEDED", f"length is {_BLOCK} at most")
    with file.open("rb") as stream:
        stream.seek(offset)
        data = stream.read(length)
    return Response(json={"bytes_read": len(data), "data": base64.b64encode(data).decode()})


def _path(given: str) -> str:
    if not given:
        raise missing("path")
    path = normal(given.removeprefix("dbfs:"))
    if path.startswith("/Volumes/"):
        raise ApiError(403, "PERMISSION_DENIED", "No operations allowed on this path")
    return path


def _file(tenant: Tenant, path: str) -> Path:
    return located(tenant.tree("dbfs"), path)


def _existing(tenant: Tenant, path: str) -> Path:
    file = _file(tenant, path)
    if not file.exists():
        message = f"No file or directory exists on path {path}."
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
    return file


def _open_file(tenant: Tenant, handle: int) -> Path:
    folder = tenant.folder / "dbfs-open"
    folder.mkdir(exist_ok=True)
    return folder / str(handle)


def _handle(request: Request) -> int:
    handle = request.integer("handle")
    if request.tenant.table(_TABLE).get(handle) is None:
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"No stream with handle {handle}.")
    return handle


def _decoded(given: Json) -> bytes:
    try:
        data = base64.b64decode(str(given or ""), validate=True)
    except binascii.Error:
        raise invalid("The data is not base64") from None
    if len(data) > _BLOCK:
        raise ApiError(400, "MAX_BLOCK_SIZE_EXCEEDED", f"A block has {_BLOCK} bytes at most.")
    return data


def _check_place(tenant: Tenant, path: str, *, overwrite: bool) -> None:
    file = _file(tenant, path)
    if file.is_dir() or (file.exists() and not overwrite):
        raise _exists(path)


def _exists(path: str) -> ApiError:
    message = f"A file or directory already exists at the input path dbfs:{path}."
    return ApiError(400, "RESOURCE_ALREADY_EXISTS", message)


def _info(file: Path, path: str) -> JsonObject:
    stat = file.stat()
    size = 0 if file.is_dir() else stat.st_size
    return {
        "path": path, "is_dir": file.is_dir(), "file_size": size,
        "modification_time": clock.changed(stat),
    }  # fmt: skip


_POSTS = (create, add_block, close, put, mkdirs, delete, move)

ROUTES = (
    *(Route("POST", f"/api/2.0/dbfs/{one.__name__.replace('_', '-')}", one) for one in _POSTS),
    Route("GET", "/api/2.0/dbfs/get-status", get_status),
    Route("GET", "/api/2.0/dbfs/list", list_files),
    Route("GET", "/api/2.0/dbfs/read", read),
)
