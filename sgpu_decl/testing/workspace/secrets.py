"""Secret scopes and what is in them: `/api/2.0/secrets/…`."""

import base64
import binascii
import re

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.clock import now_ms
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
)
from sgpu_decl.testing.workspace.secret_acls import check_scope, drop_acls, first_acl, scope_table
from sgpu_decl.testing.workspace.tables import Table
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["ROUTES", "secret_value"]

_NAME = re.compile(r"[A-Za-z0-9_.@/-]{1,128}")
_LIMIT = 128 * 1024


def secret_value(tenant: Tenant, scope: str, key: str) -> bytes:
    """A secret, as what runs on a node gets it. Raises ApiError, 404."""
    check_scope(tenant, scope)
    found = _secrets(tenant).get(f"{scope}:{key}")
    if found is None:
        message = f"Secret does not exist with scope: {scope} and key: {key}"
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
    return base64.b64decode(str(found["value"]))


def create_scope(request: Request) -> Response:
    """Make a scope."""
    scope = _named(request, "scope")
    with request.tenant.transaction():
        if scope_table(request.tenant).get(scope) is not None:
            raise ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Scope {scope} already exists!")
        scope_table(request.tenant).put(scope, {"backend_type": "DATABRICKS"})
        asked = request.json.get("initial_manage_principal")
        if asked not in (None, "users"):
            raise invalid("initial_manage_principal can be 'users' alone.")
        first_acl(request.tenant, scope, str(asked or request.tenant.user_name))
    return Response(json={})


def list_scopes(request: Request) -> Response:
    """All scopes."""
    scopes: list[Json] = [
        {"name": name, **row} for name, row in scope_table(request.tenant).items()
    ]
    return Response(json={"scopes": scopes} if scopes else {})


def delete_scope(request: Request) -> Response:
    """Delete a scope with its secrets."""
    scope = request.text("scope")
    with request.tenant.transaction():
        check_scope(request.tenant, scope)
        scope_table(request.tenant).delete(scope)
        drop_acls(request.tenant, scope)
        for key, _ in _secrets(request.tenant).items(f"{scope}:"):
            _secrets(request.tenant).delete(key)
    return Response(json={})


def put(request: Request) -> Response:
    """Write a secret, over the one that was there."""
    scope, key = request.text("scope"), _named(request, "key")
    check_scope(request.tenant, scope)
    value = _value(request.json)
    if len(value) > _LIMIT:
        raise ApiError(400, "RESOURCE_LIMIT_EXCEEDED", f"A secret has {_LIMIT} bytes at most.")
    row: JsonObject = {
        "value": base64.b64encode(value).decode(), "last_updated_timestamp": now_ms()
    }  # fmt: skip
    _secrets(request.tenant).put(f"{scope}:{key}", row)
    return Response(json={})


def get(request: Request) -> Response:
    """A secret, its value as base64."""
    scope, key = request.asked("scope"), request.asked("key")
    value = secret_value(request.tenant, scope, key)
    return Response(json={"key": key, "value": base64.b64encode(value).decode()})


def list_secrets(request: Request) -> Response:
    """The keys of a scope."""
    scope = request.asked("scope")
    check_scope(request.tenant, scope)
    found: list[Json] = [
        {"key": key.partition(":")[2], "last_updated_timestamp": row["last_updated_timestamp"]}
        for key, row in _secrets(request.tenant).items(f"{scope}:")
    ]
    return Response(json={"secrets": found} if found else {})


def delete(request: Request) -> Response:
    """Delete a secret."""
    scope, key = request.text("scope"), request.text("key")
    secret_value(request.tenant, scope, key)
    _secrets(request.tenant).delete(f"{scope}:{key}")
    return Response(json={})


def _secrets(tenant: Tenant) -> Table:
    return tenant.table("secrets")


def _named(request: Request, name: str) -> str:
    value = request.text(name)
    if not _NAME.fullmatch(value):
        raise invalid(f"The {name} `{value}` has characters that it must not have.")
    return value


def _value(given: JsonObject) -> bytes:
    text, data = given.get("string_value"), given.get("bytes_value")
    if (text is None) == (data is None):
        raise invalid("Exactly one of string_value and bytes_value is given.")
    try:
        return (
            str(text).encode() if text is not None else base64.b64decode(str(data), validate=True)
        )
    except binascii.Error:
        raise invalid("bytes_value is not base64") from None


ROUTES = (
    Route("POST", "/api/2.0/secrets/scopes/create", create_scope),
    Route("GET", "/api/2.0/secrets/scopes/list", list_scopes),
    Route("POST", "/api/2.0/secrets/scopes/delete", delete_scope),
    Route("POST", "/api/2.0/secrets/put", put),
    Route("GET", "/api/2.0/secrets/get", get),
    Route("GET", "/api/2.0/secrets/list", list_secrets),
    Route("POST", "/api/2.0/secrets/delete", delete),
)
