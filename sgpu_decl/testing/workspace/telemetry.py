"""What clients tell of themselves: taken, and thrown away."""

from sgpu_decl.testing.workspace.routes import Request, Response, Route

__all__ = ["ROUTES"]


def telemetry(request: Request) -> Response:
    """Thanks."""
    logs = request.json.get("protoLogs")
    count = len(logs) if isinstance(logs, list) else 0
    return Response(json={"errors": [], "numSuccess": 0, "numProtoSuccess": count})


ROUTES = (Route("POST", "/telemetry-ext", telemetry),)
