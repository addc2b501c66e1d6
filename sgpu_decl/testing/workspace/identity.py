"""Who am I: `/api/2.0/preview/scim/v2/Me`."""

from sgpu_decl.testing.workspace.routing import Request, Response, Route

__all__ = ["ROUTES"]


def me(request: Request) -> Response:
    """The user of the token."""
    tenant = request.tenant
    number = str(int(tenant.key, 16) % 10**16)
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


ROUTES = (Route("GET", "/api/2.0/preview/scim/v2/Me", me),)
