"""Workspace files: `/api/2.0/workspace/…` and `/api/2.0/workspace-files/…`."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.body import Body
from sgpu_decl.testing.workspace.multipart import form, is_form, texts
from sgpu_decl.testing.workspace.permissions import may_view, may_write
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
    missing,
    unknown_api,
)
from sgpu_decl.testing.workspace.trees import file_answer
from sgpu_decl.testing.workspace.workspace_objects import WorkspaceObjects, not_there

__all__ = ["ROUTES"]

_JSON_LIMIT = 10 * 1024 * 1024  # of `import` as JSON (evidence: A5)
_FILE_LIMIT = 500 * 1024 * 1024  # of `import-file`
_LANGUAGES = {".py": "PYTHON", ".sql": "SQL", ".scala": "SCALA", ".r": "R"}
_HEADERS = {
    "PYTHON": b"# Databricks notebook source",
    "R": b"# Databricks notebook source",
    "SQL": b"-- Databricks notebook source",
    "SCALA": b"// Databricks notebook source",
}
_FORMATS = ("SOURCE", "AUTO", "RAW", "JUPYTER")


def get_status(request: Request) -> Response:
    """What lies at a path."""
    objects = WorkspaceObjects(request.tenant)
    return Response(json=_said(request, objects.info(_read_path(request, objects))))


def list_objects(request: Request) -> Response:
    """What lies in a folder."""
    objects = WorkspaceObjects(request.tenant)
    found: list[Json] = [
        _said(request, one) for one in objects.children(_read_path(request, objects))
    ]
    return Response(json={"objects": found} if found else {})


def _said(request: Request, info: JsonObject) -> JsonObject:
    """What the workspace says of an object: the size of a file, or not (evidence: C22)."""
    if not request.server.profile.flag("size-listed"):
        info.pop("size", None)
    return info


def mkdirs(request: Request) -> Response:
    """Make folders."""
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of(request.text("path"))
    if not objects.file(path).is_dir():
        _check_access(request, objects, path)
    objects.make_folder(path)
    return Response(json={})


def delete(request: Request) -> Response:
    """Delete an object; a folder with something in it only where `recursive` is asked for."""
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of(request.text("path"))
    found = objects.info(path)
    if path in ("/", "/Users", "/Shared", request.tenant.home):
        raise ApiError(400, "BAD_REQUEST", f"Folder ({path}) is protected")
    _check_access(request, objects, path)
    folder = found["object_type"] == "DIRECTORY"
    if folder and not request.flag("recursive") and objects.children(path):
        raise ApiError(400, "DIRECTORY_NOT_EMPTY", f"Folder ({path}) is not empty")
    objects.delete(path, request.server.incoming)
    return Response(json={})


def import_object(request: Request) -> Response:
    """Put a file or a notebook: content as base64 in JSON, or as a file in a form. JSON may not be
    empty, and for a form nobody knows (evidence: C23)."""
    if not is_form(request):
        return _imported(request, _of_json(request), _JSON_LIMIT)
    profile = request.server.profile
    if not profile.flag("form-upload"):
        raise unknown_api(request)
    with form(request) as fields:
        upload = _of_form(request, fields)
        if not upload.content.size and not profile.flag("empty-form-upload"):
            raise _empty()
        return _imported(request, upload, int(profile.number("form-limit")))  # evidence: A5


def _imported(request: Request, upload: "_Upload", limit: int) -> Response:
    if upload.content.size > limit:
        raise _too_big(request, upload.content.size, limit)
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of(upload.path)
    path, language = _kind(path, upload)
    with request.tenant.lock:
        _check_access(request, objects, path)
        _check_place(objects, path, language, overwrite=upload.overwrite, status=400)
        objects.write(path, upload.content, language)
    return Response(json={})


def import_file(request: Request) -> Response:
    """Put a file: its bytes are the body. Where it is a notebook's source it becomes one."""
    if request.content.size > _FILE_LIMIT:
        raise _too_big(request, request.content.size, _FILE_LIMIT)
    if not request.content.size and not request.server.profile.flag("empty-raw-upload"):
        raise _empty()
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of("/" + request.parameters["path"].lstrip("/"))
    upload = _Upload(path=path, content=request.content, format="AUTO")
    path, language = _kind(path, upload)
    with request.tenant.lock:
        overwrite = request.query.get("overwrite") == "true"
        _check_access(request, objects, path)
        _check_place(objects, path, language, overwrite=overwrite, status=409)
        objects.write(path, request.content, language)
    return Response(json={})


def export(request: Request) -> Response:
    """The content of a file or a notebook: in JSON, or as the body with `direct_download`."""
    objects = WorkspaceObjects(request.tenant)
    path = _read_path(request, objects)
    found = objects.info(path)
    if found["object_type"] == "DIRECTORY":
        raise ApiError(501, "NOT_IMPLEMENTED", "the workspace emulator exports no folders")
    file = objects.file(path)
    limit = int(request.server.profile.number("read-limit"))  # evidence: A5
    if file.stat().st_size > limit:
        raise _too_big(request, file.stat().st_size, limit)
    if request.flag("direct_download"):
        return file_answer(request, file)
    content = base64.b64encode(file.read_bytes()).decode()
    suffix = PurePosixPath(path).suffix.removeprefix(".") or "file"
    return Response(json={"content": content, "file_type": suffix})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    path: str
    content: Body
    format: str = "SOURCE"
    language: str | None = None
    overwrite: bool = False


def _of_form(request: Request, fields: Mapping[str, Body]) -> _Upload:
    given = texts(request)
    if "content" not in fields:
        raise _empty()
    return _Upload(
        path=given.get("path") or _lacking("path"),
        content=fields["content"],
        format=given.get("format") or "SOURCE",
        language=given.get("language"),
        overwrite=given.get("overwrite") == "true",
    )


def _lacking(name: str) -> str:
    raise missing(name)


def _of_json(request: Request) -> _Upload:
    given: JsonObject = request.json
    content = given.get("content")
    if not isinstance(content, str) or not content:
        raise _empty()
    try:
        data = base64.b64decode(content, validate=True)
    except binascii.Error:
        raise invalid("The content is not base64") from None
    language = given.get("language")
    return _Upload(
        path=request.text("path"),
        content=Body(request.server.incoming, data=data),
        format=str(given.get("format") or "SOURCE"),
        language=str(language) if language else None,
        overwrite=request.flag("overwrite"),
    )


def _kind(path: str, upload: _Upload) -> tuple[str, str | None]:
    """Where an upload ends up, and its language if it becomes a notebook.

    Under AUTO the extension and the first line tell, and a notebook loses its extension.
    """
    if upload.format not in _FORMATS:
        raise invalid(f"The format {upload.format} is not one of {', '.join(_FORMATS)}")
    suffix = PurePosixPath(path).suffix
    bare = path.removesuffix(suffix)
    if upload.format == "RAW":
        return path, None
    if upload.format == "JUPYTER":
        return path.removesuffix(".ipynb"), "PYTHON"
    if upload.format == "SOURCE":
        if upload.language is None:
            raise invalid("The language field is required to import a file in the SOURCE format")
        return path, upload.language
    if suffix == ".ipynb":
        return bare, "PYTHON"
    language = _LANGUAGES.get(suffix.lower())
    if language is not None and _begins(upload.content, _HEADERS[language]):
        return bare, language
    return path, None


def _begins(content: Body, line: bytes) -> bool:
    with content.open() as stream:
        return stream.read(len(line)) == line


def _read_path(request: Request, objects: WorkspaceObjects) -> str:
    """The path that is to be read. Raises ApiError where it lies in the home of another user, and
    no folder above it has a list that names this one."""
    path = objects.path_of(request.asked("path"))
    if not _of_another(request, path):
        return path
    folders = [path, *map(str, PurePosixPath(path).parents)]
    numbers = [int(str(objects.info(one)["object_id"])) for one in folders if objects.is_there(one)]
    if any(may_view(request.tenant, "directories", number) for number in numbers):
        return path
    code = request.server.profile.text("hidden-folder")  # evidence: D4
    if code == "RESOURCE_DOES_NOT_EXIST":
        raise not_there(path)
    raise ApiError(
        403, code, f"{request.tenant.user_name} does not have View permissions on {path}."
    )


def _of_another(request: Request, path: str) -> bool:
    """Whether a path lies in the home of another user."""
    own = request.tenant.home
    return path.startswith("/Users/") and path != own and not path.startswith(f"{own}/")


def _check_access(request: Request, objects: WorkspaceObjects, path: str) -> None:
    """Refuse to change what lies in a folder whose list does not let the user."""
    folder = path
    while folder != "/":
        folder = str(PurePosixPath(folder).parent)
        if not objects.file(folder).is_dir():
            continue
        allowed = may_write(request.tenant, int(str(objects.info(folder)["object_id"])))
        if allowed is False:
            message = f"{request.tenant.user_name} does not have Edit permissions on {folder}."
            raise ApiError(403, "PERMISSION_DENIED", message)
        if allowed:
            return
    if _of_another(request, path):
        message = f"{request.tenant.user_name} does not have Edit permissions on {path}."
        raise ApiError(403, "PERMISSION_DENIED", message)


def _check_place(
    objects: WorkspaceObjects, path: str, language: str | None, *, overwrite: bool, status: int
) -> None:
    parent = str(PurePosixPath(path).parent)
    if not objects.file(parent).is_dir():
        message = f"The parent folder ({parent}) does not exist."
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
    try:
        there = objects.info(path)
    except ApiError:
        return
    if not overwrite:
        message = f"{path} already exists. Please pass overwrite=true to overwrite it."
        raise ApiError(status, "RESOURCE_ALREADY_EXISTS", message)
    asked = "NOTEBOOK" if language else "FILE"
    if there["object_type"] != asked:
        raise invalid(
            f"Cannot overwrite the asset at {path} due to type mismatch "
            f"(asked: {asked}, actual: {there['object_type']})"
        )


def _empty() -> ApiError:
    return invalid("No input data source provided")


def _too_big(request: Request, size: int, limit: int) -> ApiError:
    # Evidence: A5: imports and exports say "imported".
    message = f"File size imported is ({size} bytes), exceeded max size ({limit} bytes)"
    return ApiError(400, request.server.profile.text("read-refusal"), message)


ROUTES = (
    Route("GET", "/api/2.0/workspace/get-status", get_status),
    Route("GET", "/api/2.0/workspace/list", list_objects),
    Route("POST", "/api/2.0/workspace/mkdirs", mkdirs),
    Route("POST", "/api/2.0/workspace/delete", delete),
    Route("POST", "/api/2.0/workspace/import", import_object),
    Route("GET", "/api/2.0/workspace/export", export),
    Route(
        "POST", "/api/2.0/workspace-files/import-file/{path...}", import_file, needs="raw-upload"
    ),
)
