"""Mails about runs that have ended: kept, and sent to nobody. `/__testserver/mails` shows them."""

from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import JsonObject, Request, Response, Route
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["ROUTES", "write_mails"]

_TABLE = "mails"


def write_mails(
    tenant: Tenant, run_id: int, settings: Mapping[str, Json], *, succeeded: bool
) -> None:
    """Write to whoever `email_notifications` of a run names for how it ended."""
    asked = settings.get("email_notifications")
    kind = "on_success" if succeeded else "on_failure"
    recipients = asked.get(kind) if isinstance(asked, dict) else None
    for number, recipient in enumerate(recipients if isinstance(recipients, list) else ()):
        mail: JsonObject = {"to": recipient, "run_id": run_id, "kind": kind}
        tenant.table(_TABLE).put(f"{run_id}/{number}", mail)


def mails(request: Request) -> Response:
    """All mails of the caller's workspace."""
    found: list[Json] = [row for _, row in request.tenant.table(_TABLE).items()]
    return Response(json={"mails": found})


ROUTES = (Route("GET", "/__testserver/mails", mails),)
