"""Workspace files: `/api/2.0/workspace/…` and `/api/2.0/workspace-files/…`."""

import base64
import binascii
from dataclasses import dataclass
from pathlib import PurePosixPath

from sgpu_decl.testing.workspace.body import Body
from sgpu_decl.testing.workspace.multipart import form
from sgpu_decl.testing.workspace.routing import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
    missing,
)
from sgpu_decl.testing.workspace.trees import file_answer
from sgpu_decl.testing.workspace.workspace_objects import WorkspaceObjects

__all__ = ["ROUTES"]

_LIMIT = 10 * 1024 * 1024  # of `import` and `export`
_FILE_LIMIT = 500 * 1024 * 1024  # of `import-file`
_FORM_EXTRA = 64 * 1024
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
    return Response(json=objects.info(objects.path_of(request.asked("path"))))


def list_objects(request: Request) -> Response:
    """What lies in a folder."""
    objects = WorkspaceObjects(request.tenant)
    found = objects.children(objects.path_of(request.asked("path")))
    return Response(json={"objects": found} if found else {})


def mkdirs(request: Request) -> Response:
    """Make folders."""
    objects = WorkspaceObjects(request.tenant)
    objects.make_folder(objects.path_of(request.text("path")))
    return Response(json={})


def delete(request: Request) -> Response:
    """Delete an object; a folder with something in it only where `recursive` is asked for."""
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of(request.text("path"))
    found = objects.info(path)
    if path in ("/", "/Users", "/Shared", request.tenant.home):
        raise ApiError(400, "BAD_REQUEST", f"Folder ({path}) is protected")
    folder = found["object_type"] == "DIRECTORY"
    if folder and not request.flag("recursive") and objects.children(path):
        raise ApiError(400, "DIRECTORY_NOT_EMPTY", f"Folder ({path}) is not empty")
    objects.delete(path, request.server.incoming)
    return Response(json={})


def import_object(request: Request) -> Response:
    """Put a file or a notebook: content as base64 in JSON, or as a file in a form."""
    upload = _of_form(request) if _is_form(request) else _of_json(request)
    if len(upload.content) > _LIMIT:
        raise _too_big(len(upload.content))
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of(upload.path)
    path, language = _kind(path, upload)
    with request.tenant.lock:
        _check_place(objects, path, language, overwrite=upload.overwrite, status=400)
        objects.write(path, Body(request.server.incoming, data=upload.content), language)
    return Response(json={})


def import_file(request: Request) -> Response:
    """Put a file: its bytes are the body. Where it is a notebook's source it becomes one."""
    if request.content.size > _FILE_LIMIT:
        raise _too_big(request.content.size, _FILE_LIMIT)
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of("/" + request.parameters["path"].lstrip("/"))
    with request.content.open() as content:
        head = content.read(64)
    upload = _Upload(path=path, content=head, format="AUTO")
    path, language = _kind(path, upload)
    with request.tenant.lock:
        overwrite = request.query.get("overwrite") == "true"
        _check_place(objects, path, language, overwrite=overwrite, status=409)
        objects.write(path, request.content, language)
    return Response(json={})


def export(request: Request) -> Response:
    """The content of a file or a notebook: in JSON, or as the body with `direct_download`."""
    objects = WorkspaceObjects(request.tenant)
    path = objects.path_of(request.asked("path"))
    found = objects.info(path)
    if found["object_type"] == "DIRECTORY":
        raise ApiError(501, "NOT_IMPLEMENTED", "the workspace emulator exports no folders")
    file = objects.file(path)
    if file.stat().st_size > _LIMIT:
        raise _too_big(file.stat().st_size)
    if request.flag("direct_download"):
        return file_answer(request, file)
    content = base64.b64encode(file.read_bytes()).decode()
    suffix = PurePosixPath(path).suffix.removeprefix(".") or "file"
    return Response(json={"content": content, "file_type": suffix})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    path: str
    content: bytes
    format: str = "SOURCE"
    language: str | None = None
    overwrite: bool = False


def _is_form(request: Request) -> bool:
    return (request.headers.get("Content-Type") or "").startswith("multipart/form-data")


def _of_form(request: Request) -> _Upload:
    if request.content.size > _LIMIT + _FORM_EXTRA:
        raise _too_big(request.content.size)
    fields = form(request)
    if "content" not in fields:
        raise invalid("No input data source provided")
    return _Upload(
        path=_text(fields, "path") or _lacking("path"),
        content=fields["content"],
        format=_text(fields, "format") or "SOURCE",
        language=_text(fields, "language"),
        overwrite=_text(fields, "overwrite") == "true",
    )


def _text(fields: dict[str, bytes], name: str) -> str | None:
    return fields[name].decode() if name in fields else None


def _lacking(name: str) -> str:
    raise missing(name)


def _of_json(request: Request) -> _Upload:
    given: JsonObject = request.json
    content = given.get("content")
    if not isinstance(content, str) or not content:
        raise invalid("No input data source provided")
    try:
        data = base64.b64decode(content, validate=True)
    except binascii.Error:
        raise invalid("The content is not base64") from None
    language = given.get("language")
    return _Upload(
        path=request.text("path"),
        content=data,
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
    if language is not None and upload.content.startswith(_HEADERS[language]):
        return bare, language
    return path, None


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


def _too_big(size: int, limit: int = _LIMIT) -> ApiError:
    message = f"File size imported is ({size} bytes), exceeded max size ({limit} bytes)"
    return ApiError(400, "MAX_NOTEBOOK_SIZE_EXCEEDED", message)


ROUTES = (
    Route("GET", "/api/2.0/workspace/get-status", get_status),
    Route("GET", "/api/2.0/workspace/list", list_objects),
    Route("POST", "/api/2.0/workspace/mkdirs", mkdirs),
    Route("POST", "/api/2.0/workspace/delete", delete),
    Route("POST", "/api/2.0/workspace/import", import_object),
    Route("GET", "/api/2.0/workspace/export", export),
    Route("POST", "/api/2.0/workspace-files/import-file/{path...}", import_file),
)
