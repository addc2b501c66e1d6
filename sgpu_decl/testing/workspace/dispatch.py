"""From a request to its answer: who asks, which faults befall it, which handler it is for."""

import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from email.message import Message
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.access import authenticated
from sgpu_decl.testing.workspace.body import Body, spooled
from sgpu_decl.testing.workspace.control import PREFIX
from sgpu_decl.testing.workspace.faults import Effect, Fault
from sgpu_decl.testing.workspace.multipart import is_form, texts
from sgpu_decl.testing.workspace.request_log import Recorded
from sgpu_decl.testing.workspace.routes import ApiError, Request, Response, Route, unknown_api

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.server import WorkspaceServer

__all__ = ["RequestContext", "Severed", "answer"]

_RECORDED_JSON = 1 << 16


class Severed(Exception):
    """The connection ends here, without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What came over the wire; the body has yet to be read."""

    method: str
    target: str
    headers: Message
    blocks: Iterator[bytes]


def answer(server: "WorkspaceServer", call: RequestContext) -> Response:
    """The answer to a call. Raises Severed where there is none."""
    path, _, query = call.target.partition("?")
    body = Body(server.incoming)
    request = Request(
        method=call.method, path=path, query=dict(parse_qsl(query, keep_blank_values=True)),
        headers=call.headers, content=body, server=server,
    )  # fmt: skip
    route, refusal, request = _admitted(server, request)
    controlling = path.startswith(PREFIX)
    tenant = request.caller.key if request.caller else None
    line = f"{call.method} {call.target}"
    status = 0
    try:
        faults = [] if controlling else server.faults.befalling(line, tenant)
        if any(fault.effect is Effect.CUT for fault in faults):
            raise Severed
        body = spooled(call.blocks, server.incoming)
        request = replace(request, content=body)
        response = _refused(refusal) if refusal else None
        if response is None and route is not None:
            response = _under(faults, route, request, line)
        if response is None:
            raise Severed
        status = response.status
        return replace(response, headers={**response.headers, "X-Databricks-Org-Id": server.org_id})
    finally:
        if not controlling:
            server.recording.add(_recorded(request, tenant, status))
        body.discard()


def _admitted(
    server: "WorkspaceServer", request: Request
) -> tuple[Route | None, ApiError | None, Request]:
    """The route, or why there is none for this caller; and the request with what the route adds."""
    if not _is_meant(server, request):
        message = f"the workspace emulator is not `{request.headers.get('Host')}`"
        return None, ApiError(421, "MISDIRECTED_REQUEST", message), request
    found = server.router.find(request.method, request.path)
    header = request.headers.get("Authorization")
    route, parameters = found or (None, {})
    try:
        caller = None
        if (header is not None and (header.startswith("Bearer "))) or not (route and route.public):
            caller = authenticated(header, server.tenants, server.users, server.profile)
    except ApiError as error:
        return None, error, request
    if caller is None and route is not None and "tenant" in parameters:
        caller = server.tenants.by_key(parameters["tenant"])  # a URL that carries its own right
    request = replace(request, caller=caller, parameters=parameters)
    if route is None or (route.needs and not server.profile.flag(route.needs)):
        return None, unknown_api(request), request
    return route, None, request


def _is_meant(server: "WorkspaceServer", request: Request) -> bool:
    """Whether a request names this server: a page in a browser that was led here by a name of its
    own does not."""
    named = request.headers.get_all("Host") or []
    return len(named) == 1 and re.sub(r":\d+$", "", named[0].lower()) in server.hosts


def _under(faults: list[Fault], route: Route, request: Request, line: str) -> Response | None:
    """The handler's answer, with what faults make of it; None where it is lost."""
    server = request.server
    after: Fault | None = None
    for fault in faults:
        if fault.effect is Effect.DELAY and server.closing.wait(fault.seconds):
            return None
        if fault.effect is Effect.HOOK:
            server.faults.call(fault, request)
        if fault.effect is Effect.STALE:
            server.staleness.remember(request.tenant, fault)
        if fault.effect is Effect.STATUS and not fault.keep:
            return _of_fault(fault)
        if fault.effect in (Effect.STATUS, Effect.LOSE_ANSWER):
            after = after or fault
    response = _handled(route, request, line)
    if after is None:
        return response
    return _of_fault(after) if after.effect is Effect.STATUS else None


def _handled(route: Route, request: Request, line: str) -> Response:
    try:
        if request.caller is None:
            return route.handler(request)
        tenant = request.server.staleness.seen(request.caller, line)
        return route.handler(replace(request, caller=tenant))
    except ApiError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001  a defect of a handler must not end the server
        request.server.report(f"{line}\n{traceback.format_exc()}")
        return _refused(ApiError(500, "INTERNAL_ERROR", f"{type(error).__name__}: {error}"))


def _refused(error: ApiError) -> Response:
    if error.body is not None:
        return Response(status=error.status, body=error.body, headers=error.headers)
    body: dict[str, Json] = {"error_code": error.error_code, "message": error.message}
    if error.details is not None:
        body["details"] = error.details
    return Response(status=error.status, json=body, headers=error.headers)


_CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_CONFLICT",
    429: "REQUEST_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
    503: "TEMPORARILY_UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def _of_fault(fault: Fault) -> Response:
    code = _CODES.get(fault.status_code, "UNKNOWN")
    default: dict[str, Json] = {"error_code": code, "message": "a fault that a test asked for"}
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    body = default if fault.body is None else fault.body
    return Response(status=fault.status_code, json=body, headers=headers)


def _recorded(request: Request, tenant: str | None, status: int) -> Recorded:
    given: Json = None
    small = request.content.size <= _RECORDED_JSON
    if is_form(request):
        with suppress(ApiError):
            given = dict(texts(request))
    if small and (request.headers.get("Content-Type") or "").startswith("application/json"):
        try:
            given = request.json
        except ApiError:
            given = None
    return Recorded(
        method=request.method, path=request.path, query=dict(request.query), tenant=tenant,
        status=status, size=request.content.size, json=given,
    )  # fmt: skip
