"""Who sends a request: the bearer token, checked as the platform checks it."""

import re
from collections.abc import Mapping

from sgpu_decl.testing.workspace.routing import ApiError
from sgpu_decl.testing.workspace.tenant import Tenant, Tenants, TokenState, User

__all__ = ["authenticated"]

# personal access tokens, and tokens that the OAuth endpoint gave
_TOKEN = re.compile(r"(dapi|eyJ)[A-Za-z0-9._~+/=-]{4,}")


def authenticated(header: str | None, tenants: Tenants, users: Mapping[str, User]) -> Tenant:
    """The tenant of an Authorization header.

    Raises ApiError: 401 for none, 403 for a token that is none, that has expired, or whose user may
    not use the workspace.
    """
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        message = "Credential was not sent or was of an unsupported type for this API."
        raise ApiError(401, "401", message, headers={"WWW-Authenticate": "Bearer"})
    user = users.get(token)
    if user is None and not _TOKEN.fullmatch(token):
        raise ApiError(403, "403", "Invalid access token.")
    if user is not None and user.state is TokenState.EXPIRED:
        raise ApiError(403, "403", "Invalid access token. The token has expired.")
    if user is not None and user.state is TokenState.FORBIDDEN:
        message = f"User {user.name} does not have permission to access this workspace."
        raise ApiError(403, "PERMISSION_DENIED", message)
    return tenants.of_token(token)
