"""Big files in parts, as the SDK sends them: a session, URLs that need no token, and its end.

Parts lie beside the volumes until the session is completed, so nothing of it is seen before. The
URLs are of this server, in place of the cloud storage's; they expire.
"""

import hashlib
import shutil
from datetime import datetime
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace import clock
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
)
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.trees import file_answer, normal
from sgpu_decl.testing.workspace.volume_files import check_writable
from sgpu_decl.testing.workspace.volumes import volume_file

__all__ = ["ROUTES"]

_TABLE = "multipart_uploads"
_LIFETIME = 3600
_MOST_PARTS = 10_000


def act(request: Request) -> Response:
    """Begin a session, or end it."""
    action = request.query.get("action")
    if action == "initiate-upload":
        return _initiate(request)
    if action == "complete-upload":
        return _complete(request)
    if action == "abort-upload":
        return _abort(request.tenant, request.asked("session_token"))
    raise invalid(f"Unknown action: {action}")


def part_urls(request: Request) -> Response:
    """Where to send parts."""
    token = request.text("session_token")
    _session(request.tenant, token)
    first, count = request.integer("start_part_number"), request.integer("count")
    if first < 1 or count < 1 or first + count - 1 > _MOST_PARTS:
        raise invalid(f"Part numbers are 1 to {_MOST_PARTS}.")
    urls: list[Json] = [
        {"url": _url(request, "part", f"{token}/{number}"), "part_number": number, "headers": []}
        for number in range(first, first + count)
    ]
    return Response(json={"upload_part_urls": urls})


def abort_url(request: Request) -> Response:
    """Where to say that a session is given up."""
    token = request.text("session_token")
    _session(request.tenant, token)
    url = _url(request, "abort", token)
    return Response(json={"abort_upload_url": {"url": url, "headers": []}})


def download_url(request: Request) -> Response:
    """Where to get a file without a token."""
    path = request.query.get("path") or request.text("path")
    if not volume_file(request.tenant, path).is_file():
        raise ApiError(404, "NOT_FOUND", "The file being accessed is not found.")
    return Response(json={"url": _url(request, "file", quote(normal(path)[1:])), "headers": []})


def put_part(request: Request) -> Response:
    """A part comes."""
    _in_time(request)
    tenant, token = request.tenant, request.parameters["token"]
    _session(tenant, token)
    digest = hashlib.md5(usedforsecurity=False)
    with request.content.open() as content:
        while block := content.read(1 << 20):
            digest.update(block)
    etag = f'"{digest.hexdigest()}"'
    with tenant.transaction():
        request.content.move_to(_folder(tenant, token) / request.parameters["number"])
        tenant.table(_TABLE).put(f"{token}/{int(request.parameters['number']):06d}", {"etag": etag})
    return Response(body=b"", headers={"ETag": etag})


def drop(request: Request) -> Response:
    """A session is given up."""
    _in_time(request)
    return _abort(request.tenant, request.parameters["token"])


def get_file(request: Request) -> Response:
    """A file, by a URL of `download_url`."""
    _in_time(request)
    return file_answer(request, volume_file(request.tenant, "/" + request.parameters["path"]))


def _initiate(request: Request) -> Response:
    path = "/" + request.parameters["path"]
    overwrite = request.query.get("overwrite") != "false"
    check_writable(volume_file(request.tenant, path), overwrite=overwrite)
    token = uuid4().hex
    _folder(request.tenant, token).mkdir(parents=True)
    request.tenant.table(_TABLE).put(token, {"path": path, "overwrite": overwrite})
    return Response(json={"multipart_upload": {"session_token": token}})


def _complete(request: Request) -> Response:
    tenant, token = request.tenant, request.asked("session_token")
    session = _session(tenant, token)
    given = request.json.get("parts")
    known = {key: row["etag"] for key, row in tenant.table(_TABLE).items(f"{token}/")}
    numbers = []
    for part in given if isinstance(given, list) else []:
        number = int(part["part_number"])
        if known.get(f"{token}/{number:06d}") != part.get("etag"):
            raise invalid(f"Part {number} was not uploaded, or has another ETag.")
        numbers.append(number)
    if not numbers or numbers != sorted(set(numbers)):
        raise invalid("The parts of an upload are listed in ascending order.")
    folder = _folder(tenant, token)
    whole = folder / str(numbers[0])
    with whole.open("ab") as out:
        for number in numbers[1:]:
            with (folder / str(number)).open("rb") as part_file:
                shutil.copyfileobj(part_file, out, 1 << 20)
    target = volume_file(tenant, str(session["path"]))
    with tenant.lock:
        check_writable(target, overwrite=bool(session["overwrite"]))
        target.parent.mkdir(parents=True, exist_ok=True)
        whole.replace(target)
    _abort(tenant, token)
    return Response(json={})


def _abort(tenant: Tenant, token: str) -> Response:
    _session(tenant, token)
    with tenant.transaction():
        for key, _ in tenant.table(_TABLE).items(token):
            tenant.table(_TABLE).delete(key)
        shutil.rmtree(_folder(tenant, token))
    return Response(status=204)


def _session(tenant: Tenant, token: str) -> JsonObject:
    found = tenant.table(_TABLE).get(token)
    if found is None:
        raise ApiError(404, "NOT_FOUND", "The upload session is not found.")
    return found


def _folder(tenant: Tenant, token: str) -> Path:
    return tenant.folder / "uploads" / token


def _url(request: Request, kind: str, rest: str) -> str:
    until = str(request.query.get("expire_time") or request.json.get("expire_time") or "")
    try:
        end = int(datetime.fromisoformat(until).timestamp())
    except ValueError:
        end = int(clock.now()) + _LIFETIME
    return f"{request.server.url}/__storage/{request.tenant.key}/{kind}/{rest}?expires={end}"


def _in_time(request: Request) -> None:
    if request.integer("expires", 0) < clock.now():
        # what the cloud storage says, in its words and its XML: the SDK asks for a new URL then
        raise ApiError(
            403, "ACCESS_DENIED", "Request has expired",
            body=b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
        )  # fmt: skip


ROUTES = (
    Route("POST", "/api/2.0/fs/files/{path...}", act),
    Route("POST", "/api/2.0/fs/create-upload-part-urls", part_urls),
    Route("POST", "/api/2.0/fs/create-abort-upload-url", abort_url),
    Route("POST", "/api/2.0/fs/create-download-url", download_url),
    Route("PUT", "/__storage/{tenant}/part/{token}/{number}", put_part, public=True),
    Route("DELETE", "/__storage/{tenant}/abort/{token}", drop, public=True),
    Route("GET", "/__storage/{tenant}/file/{path...}", get_file, public=True),
)
