"""Who am I, and which groups are there: `/api/2.0/preview/scim/v2/…`."""

import re
from hashlib import sha256

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import JsonObject, Request, Response, Route, invalid

__all__ = ["ROUTES"]

_NAMED = re.compile(r'displayName eq "((?:[^"\\]|\\.)*)"')


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
    """The groups of the workspace; of filters, `displayName eq "…"` alone is known."""
    asked = request.query.get("filter")
    named = None if asked is None else _NAMED.fullmatch(asked.strip())
    if asked is not None and named is None:
        raise invalid(f"this emulator knows the filter `displayName eq` alone, not: {asked}")
    wanted = None if named is None else re.sub(r"\\(.)", r"\1", named[1]).lower()
    found: list[Json] = [
        {"id": str(number), "displayName": name}
        for number, name in enumerate(request.server.offers.groups, start=1)
        if wanted in (None, name.lower())
    ]
    shape: JsonObject = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": len(found), "startIndex": 1, "itemsPerPage": len(found),
        "Resources": found,
    }  # fmt: skip
    return Response(json=shape)


ROUTES = (
    Route("GET", "/api/2.0/preview/scim/v2/Me", me),
    Route("GET", "/api/2.0/preview/scim/v2/Groups", groups),
)
