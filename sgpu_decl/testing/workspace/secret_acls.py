"""Who may do what with secret scopes: `/api/2.0/secrets/acls/…`.

The lists are kept. A workspace here has one user, who made all scopes: nobody is refused by them.
"""

import re

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    Request,
    Response,
    Route,
    invalid,
)
from sgpu_decl.testing.workspace.tables import Table
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["ROUTES", "check_scope", "drop_acls", "first_acl", "scope_table"]

_PERMISSIONS = ("READ", "WRITE", "MANAGE")
_NAMED = re.compile(r"[^@\s]+@[^@\s]+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def scope_table(tenant: Tenant) -> Table:
    """All scopes by name."""
    return tenant.table("secret_scopes")


def check_scope(tenant: Tenant, scope: str) -> None:
    """Raises ApiError, 404, where there is no such scope."""
    if scope_table(tenant).get(scope) is None:
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"Scope {scope} does not exist!")


def first_acl(tenant: Tenant, scope: str, principal: str) -> None:
    """Let a principal manage a new scope."""
    _acls(tenant).put(f"{scope}:{principal}", {"permission": "MANAGE"})


def drop_acls(tenant: Tenant, scope: str) -> None:
    """Forget the list of a scope that is deleted."""
    for key, _ in _acls(tenant).items(f"{scope}:"):
        _acls(tenant).delete(key)


def put(request: Request) -> Response:
    """Say what a principal may do, over what was said before."""
    scope, principal = request.text("scope"), request.text("principal")
    permission = request.text("permission")
    check_scope(request.tenant, scope)
    if permission not in _PERMISSIONS:
        raise invalid(f"Unknown permission '{permission}' of {', '.join(_PERMISSIONS)}.")
    if not (_NAMED.fullmatch(principal) or principal in request.server.offers.groups):
        raise invalid(f"Principal '{principal}' does not exist.")
    _acls(request.tenant).put(f"{scope}:{principal}", {"permission": permission})
    return Response(json={})


def get(request: Request) -> Response:
    """What a principal may do."""
    principal = request.asked("principal")
    return Response(json=_entry(principal, _permission(request, request.asked("scope"), principal)))


def list_acls(request: Request) -> Response:
    """What everybody may do with a scope."""
    scope = request.asked("scope")
    check_scope(request.tenant, scope)
    items: list[Json] = [
        _entry(key.partition(":")[2], row["permission"])
        for key, row in _acls(request.tenant).items(f"{scope}:")
    ]
    return Response(json={"items": items} if items else {})


def delete(request: Request) -> Response:
    """Take what a principal may do away."""
    scope, principal = request.text("scope"), request.text("principal")
    _permission(request, scope, principal)
    _acls(request.tenant).delete(f"{scope}:{principal}")
    return Response(json={})


def _acls(tenant: Tenant) -> Table:
    return tenant.table("secret_acls")


def _permission(request: Request, scope: str, principal: str) -> Json:
    check_scope(request.tenant, scope)
    found = _acls(request.tenant).get(f"{scope}:{principal}")
    if found is None:
        message = f"Principal {principal} has no permission for the scope {scope}."
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
    return found["permission"]


def _entry(principal: str, permission: Json) -> dict[str, Json]:
    return {"principal": principal, "permission": permission}


ROUTES = (
    Route("POST", "/api/2.0/secrets/acls/put", put),
    Route("GET", "/api/2.0/secrets/acls/get", get),
    Route("GET", "/api/2.0/secrets/acls/list", list_acls),
    Route("POST", "/api/2.0/secrets/acls/delete", delete),
)
