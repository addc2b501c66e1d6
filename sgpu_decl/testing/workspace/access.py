"""Who sends a request: the bearer token, checked as the platform checks it."""

from collections.abc import Mapping

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace.routes import ApiError
from sgpu_decl.testing.workspace.tenant import Tenant, Tenants, TokenState, User

__all__ = ["authenticated"]


def authenticated(
    header: str | None, tenants: Tenants, users: Mapping[str, User], profile: Profile
) -> Tenant:
    """The tenant of an Authorization header.

    Raises ApiError: 401 for none, 403 for a user who may not use the workspace, and what the
    profile says for a token that was never given out or has expired.
    """
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        message = "Credential was not sent or was of an unsupported type for this API."
        raise ApiError(401, "401", message, headers={"WWW-Authenticate": "Bearer"})
    user = users.get(token)
    wrong = int(profile.number("wrong-token"))  # evidence: A10
    if user is None and not tenants.knows(token):
        raise ApiError(wrong, str(wrong), "Invalid access token.")
    if user is not None and user.state is TokenState.EXPIRED:
        raise ApiError(wrong, str(wrong), "Invalid access token. The token has expired.")
    if user is not None and user.state is TokenState.FORBIDDEN:
        message = f"User {user.name} does not have permission to access this workspace."
        raise ApiError(403, "PERMISSION_DENIED", message)
    return tenants.of_token(token)
