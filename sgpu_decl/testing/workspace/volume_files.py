"""The Files API on volumes: `/api/2.0/fs/files/…` and `/api/2.0/fs/directories/…`."""

from pathlib import Path

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.clock import changed
from sgpu_decl.testing.workspace.routes import ApiError, JsonObject, Request, Response, Route
from sgpu_decl.testing.workspace.trees import file_answer, normal, removed
from sgpu_decl.testing.workspace.volumes import volume_file

__all__ = ["ROUTES", "check_writable"]

_PAGE = 1000
_LIMIT = 5 * 1024**3


def upload(request: Request) -> Response:
    """Put a file; folders above it come with it."""
    if request.content.size > _LIMIT:
        raise ApiError(413, "REQUEST_TOO_LARGE", "A file of one request has 5 GiB at most.")
    file = _file(request)
    with request.tenant.lock:
        check_writable(file, overwrite=request.query.get("overwrite") != "false")
        file.parent.mkdir(parents=True, exist_ok=True)
        request.content.move_to(file)
    return Response(status=204)


def download(request: Request) -> Response:
    """The bytes of a file, all or a range."""
    return file_answer(request, _existing(request))


def delete(request: Request) -> Response:
    """Delete a file."""
    _existing(request).unlink()
    return Response(status=204)


def make_folder(request: Request) -> Response:
    """Make a folder and those above it."""
    try:
        _file(request).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        message = "The directory being created already exists as a file."
        raise ApiError(409, "ALREADY_EXISTS", message) from None
    return Response(status=204)


def look_at_folder(request: Request) -> Response:
    """Whether a folder is there."""
    _folder(request)
    return Response(body=b"")


def list_folder(request: Request) -> Response:
    """What lies in a folder, page by page, by name."""
    folder = _folder(request)
    size = min(request.integer("page_size", _PAGE) or _PAGE, _PAGE)
    after = request.query.get("page_token", "")
    names = sorted(path.name for path in folder.iterdir() if path.name > after)
    base = normal("/" + request.parameters["path"])
    contents: list[Json] = [_entry(folder / name, f"{base}/{name}") for name in names[:size]]
    answer: JsonObject = {"contents": contents} if contents else {}
    if len(names) > size:
        answer["next_page_token"] = names[size - 1]
    return Response(json=answer)


def delete_folder(request: Request) -> Response:
    """Delete a folder that is empty."""
    folder = _folder(request)
    with request.tenant.lock:
        if any(folder.iterdir()):
            message = "The directory being deleted is not empty."
            reason = _reason("FILES_API_DIRECTORY_IS_NOT_EMPTY")
            raise ApiError(400, "INVALID_PARAMETER_VALUE", message, reason)
        removed(folder, request.server.incoming)
    return Response(status=204)


def check_writable(file: Path, *, overwrite: bool) -> None:
    """Raises ApiError where a file cannot be put: 409 for one that is there and must stay."""
    if file.is_dir():
        raise ApiError(409, "ALREADY_EXISTS", "The path being written is a directory.")
    if file.exists() and not overwrite:
        raise ApiError(409, "ALREADY_EXISTS", "The file being created already exists.")
    above = next(path for path in file.parents if path.exists())
    if not above.is_dir():
        raise ApiError(409, "ALREADY_EXISTS", "A part of the path being written is a file.")


def _file(request: Request) -> Path:
    return volume_file(request.tenant, "/" + request.parameters["path"])


def _existing(request: Request) -> Path:
    file = _file(request)
    if file.is_dir():
        raise ApiError(400, "INVALID_PARAMETER_VALUE", "The path being accessed is a directory.")
    if not file.is_file():
        raise ApiError(404, "NOT_FOUND", "The file being accessed is not found.")
    return file


def _folder(request: Request) -> Path:
    folder = _file(request)
    if not folder.is_dir():
        raise ApiError(404, "NOT_FOUND", "The directory being accessed is not found.")
    return folder


def _entry(path: Path, name: str) -> JsonObject:
    stat = path.stat()
    entry: JsonObject = {"path": name, "name": path.name, "is_directory": path.is_dir()}
    if not path.is_dir():
        entry |= {"file_size": stat.st_size, "last_modified": changed(stat)}
    return entry


def _reason(reason: str) -> list[Json]:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
    return [info | {"domain": "filesystem.databricks.com"}]


ROUTES = (
    Route("PUT", "/api/2.0/fs/files/{path...}", upload),
    Route("GET", "/api/2.0/fs/files/{path...}", download),
    Route("DELETE", "/api/2.0/fs/files/{path...}", delete),
    Route("PUT", "/api/2.0/fs/directories/{path...}", make_folder),
    Route("HEAD", "/api/2.0/fs/directories/{path...}", look_at_folder),
    Route("GET", "/api/2.0/fs/directories/{path...}", list_folder),
    Route("DELETE", "/api/2.0/fs/directories/{path...}", delete_folder),
)
