"""Who am I, and who else is there: `/api/2.0/preview/scim/v2/…`."""

import re
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
)

__all__ = ["ROUTES"]

_NAMED = re.compile(r'(?P<attribute>\w+) eq "(?P<name>(?:[^"\\]|\\.)*)"')


def me(request: Request) -> Response:
    """The user of the token."""
    tenant = request.tenant
    number = str(int(sha256(f"{tenant.key} {tenant.user_name}".encode()).hexdigest()[:13], 16))
    return Response(
        json={
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
            "id": number,
            "userName": tenant.user_name,
            "displayName": tenant.user_name.partition("@")[0],
            "active": True,
            "emails": [{"type": "work", "value": tenant.user_name, "primary": True}],
            "groups": [{"display": "users", "type": "direct", "value": "1"}],
        }
    )


def groups(request: Request) -> Response:
    """The groups of the workspace."""
    return _listed(request, "displayName", request.server.offers.groups)


def users(request: Request) -> Response:
    """Its users."""
    return _listed(request, "userName", request.server.offers.users)


def service_principals(request: Request) -> Response:
    """Its service principals, which have display names, too."""
    offers = request.server.offers
    shown = dict(offers.principal_names)
    return _listed(request, "applicationId", offers.service_principals, shown)


def _listed(
    request: Request,
    attribute: str,
    names: tuple[str, ...] | None,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Those whose attribute, or whose display name in `shown`, is what the filter asks for; other
    filters are not known."""
    if names is None:
        raise ApiError(403, "PERMISSION_DENIED", "Only workspace admins may list these.")
    asked = request.query.get("filter")
    named = None if asked is None else _NAMED.fullmatch(asked.strip())
    attributes = (attribute, "displayName") if shown else (attribute,)
    if asked is not None and (named is None or named["attribute"] not in attributes):
        raise invalid(f"this emulator knows the filter `{attribute} eq` alone, not: {asked}")
    wanted = None if named is None else re.sub(r"\\(.)", r"\1", named["name"]).lower()
    key = attribute if named is None else named["attribute"]
    entries: list[dict[str, Json]] = []
    for number, name in enumerate(names, start=1):
        display: dict[str, Json] = {"displayName": shown[name]} if name in shown else {}
        entries.append({"id": str(number), **display, attribute: name})
    found: list[Json] = [one for one in entries if wanted in (None, str(one.get(key, "")).lower())]
    shape: JsonObject = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": len(found), "startIndex": 1, "itemsPerPage": len(found),
        "Resources": found,
    }  # fmt: skip
    return Response(json=shape)


ROUTES = (
    Route("GET", "/api/2.0/preview/scim/v2/Me", me),
    Route("GET", "/api/2.0/preview/scim/v2/Groups", groups),
    Route("GET", "/api/2.0/preview/scim/v2/Users", users),
    Route("GET", "/api/2.0/preview/scim/v2/ServicePrincipals", service_principals),
)
