"""What clients ask of a host before they have a token, and the tokens of service principals."""

import base64
import binascii
import hmac
from urllib.parse import parse_qs

from sgpu_decl.testing.workspace.routes import ApiError, Request, Response, Route

__all__ = ["ROUTES"]


def host_metadata(request: Request) -> Response:
    """What kind of host this is."""
    server = request.server
    return Response(
        json={"oidc_endpoint": f"{server.url}/oidc", "workspace_id": server.org_id, "cloud": "aws"}
    )


def endpoints(request: Request) -> Response:
    """Where tokens come from."""
    base = f"{request.server.url}/oidc"
    return Response(
        json={
            "issuer": base,
            "authorization_endpoint": f"{base}/v1/authorize",
            "token_endpoint": f"{base}/v1/token",
            "grant_types_supported": ["client_credentials"],
        }
    )


def token(request: Request) -> Response:
    """A token for a service principal. A client gets the same one again: it stays one tenant."""
    form = {name: values[-1] for name, values in parse_qs(request.body.decode()).items()}
    client, secret = _basic(request.headers.get("Authorization"))
    client, secret = form.get("client_id", client), form.get("client_secret", secret)
    if form.get("grant_type") != "client_credentials" or not client:
        raise ApiError(400, "invalid_request", "this host gives tokens for client credentials")
    server = request.server
    known = server.clients.get(client, "")
    if not known or not hmac.compare_digest(known.encode(), secret.encode()):
        raise ApiError(401, "invalid_client", "Client authentication failed")
    made = hmac.new(server.token().encode(), f"client {client}".encode(), "sha256").hexdigest()
    return Response(
        json={
            "access_token": server.admit(f"eyJ{made}"),
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": form.get("scope", "all-apis"),
        }
    )


def _basic(header: str | None) -> tuple[str, str]:
    """The name and the password of a header of basic authentication; empty without one."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(text).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password


def root(_: Request) -> Response:
    """Clients look whether the host is there."""
    return Response(body=b"sgpu workspace emulator\n", headers={"Content-Type": "text/plain"})


ROUTES = (
    Route("GET", "/", root, public=True),
    Route("GET", "/.well-known/databricks-config", host_metadata, public=True),
    Route("GET", "/oidc/.well-known/oauth-authorization-server", endpoints, public=True),
    Route("GET", "/oidc/.well-known/openid-configuration", endpoints, public=True),
    Route("POST", "/oidc/v1/token", token, public=True),
)
