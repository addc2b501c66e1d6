"""`/__testserver`: what tests tell the server, and ask it. With a bearer token it is about that
tenant, without one about all."""

from sgpu_decl.testing.workspace.faults import Fault
from sgpu_decl.testing.workspace.routing import Request, Response, Route

__all__ = ["PREFIX", "ROUTES"]

PREFIX = "/__testserver/"


def fault(request: Request) -> Response:
    """Put a rule in force."""
    request.server.faults.add(Fault.of_json(request.json), tenant=_key(request))
    return Response(json={})


def requests(request: Request) -> Response:
    """What was asked so far."""
    return Response(json={"requests": request.server.recording.as_json(_key(request))})


def reset(request: Request) -> Response:
    """Forget rules and recorded requests; what tenants have stays."""
    request.server.faults.clear(_key(request))
    request.server.recording.clear(_key(request))
    return Response(json={})


def _key(request: Request) -> str | None:
    return request.caller.key if request.caller else None


ROUTES = (
    Route("POST", f"{PREFIX}fault", fault, public=True),
    Route("GET", f"{PREFIX}requests", requests, public=True),
    Route("POST", f"{PREFIX}reset", reset, public=True),
)
