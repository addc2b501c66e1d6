"""`/__testserver`: what tests tell the server, and ask it, each about its own tenant. What is about
all tenants is told to the server in Python."""

from sgpu_decl.testing.workspace.faults import Fault
from sgpu_decl.testing.workspace.routes import Request, Response, Route

__all__ = ["PREFIX", "ROUTES"]

PREFIX = "/__testserver/"


def fault(request: Request) -> Response:
    """Put a rule in force."""
    request.server.faults.add(Fault.of_json(request.json), tenant=request.tenant.key)
    return Response(json={})


def requests(request: Request) -> Response:
    """What was asked so far."""
    return Response(json={"requests": request.server.recording.as_json(request.tenant.key)})


def reset(request: Request) -> Response:
    """Forget rules and recorded requests; what tenants have stays."""
    request.server.faults.clear(request.tenant.key)
    request.server.recording.clear(request.tenant.key)
    return Response(json={})


ROUTES = (
    Route("POST", f"{PREFIX}fault", fault),
    Route("GET", f"{PREFIX}requests", requests),
    Route("POST", f"{PREFIX}reset", reset),
)
