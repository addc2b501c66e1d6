"""What clients ask of a host before they have a token, and the tokens of service principals.

A principal has a secret (RFC 6749, 4.4), or trusts the tokens of an issuer (RFC 8693, as the
platform's federation of workloads uses it:
https://docs.databricks.com/aws/en/dev-tools/auth/oauth-federation-exchange). Refusals are those of
RFC 6749, 5.2. No signature of a token is checked: the emulator has no keys of issuers.
"""

import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from sgpu_decl.testing.workspace.routes import ApiError, Request, Response, Route
from sgpu_decl.testing.workspace.tenant import User

__all__ = ["ROUTES", "FederationPolicy"]

_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_JWT = "urn:ietf:params:oauth:token-type:jwt"
_BASIC = {"WWW-Authenticate": "Basic"}
_NOT_KEPT = {"Cache-Control": "no-store", "Pragma": "no-cache"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationPolicy:
    """Whose tokens stand for a service principal: the `oidc_policy` of the platform. `workspace` is
    that of a `User`."""

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    subject_claim: str = "sub"
    workspace: str | None = None


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
            "grant_types_supported": ["client_credentials", _EXCHANGE],
        }
    )


def token(request: Request) -> Response:
    """A token for a service principal. A client gets the same one again: it stays one tenant."""
    form = {name: values[-1] for name, values in parse_qs(request.body.decode()).items()}
    grant = form.get("grant_type")
    if grant is None:
        raise _refused(400, "invalid_request", "grant_type is missing")
    if grant == _EXCHANGE:
        client = _federated_client(request, form)
    elif grant == "client_credentials":
        client = _client_of_secret(request, form)
    else:
        raise _refused(400, "unsupported_grant_type", f"unknown grant_type: {grant}")
    server = request.server
    made = hmac.new(server.token().encode(), f"client {client}".encode(), "sha256").hexdigest()
    access_token = f"eyJ{made}"
    policy = server.federation.get(client)
    if policy is not None:
        server.users[access_token] = User(name=client, workspace=policy.workspace)
    return Response(
        json={
            "access_token": server.admit(access_token),
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": form.get("scope", "all-apis"),
        },
        headers=_NOT_KEPT,
    )


def _client_of_secret(request: Request, form: Mapping[str, str]) -> str:
    header = request.headers.get("Authorization")
    client, secret = _basic(header)
    if client and "client_secret" in form:
        raise _refused(400, "invalid_request", "the client authenticates in more than one way")
    client, secret = form.get("client_id", client), form.get("client_secret", secret)
    known = request.server.clients.get(client, "")
    if not known or not hmac.compare_digest(known.encode(), secret.encode()):
        challenge = _BASIC if header is not None else {}
        raise _refused(401, "invalid_client", "Client authentication failed", **challenge)
    return client


def _federated_client(request: Request, form: Mapping[str, str]) -> str:
    if form.get("subject_token_type") != _JWT:
        raise _refused(400, "invalid_request", f"subject_token_type must be {_JWT}")
    client = form.get("client_id", "")
    policy = request.server.federation.get(client)
    if policy is None:
        raise _refused(401, "invalid_client", f"no federation policy for client_id `{client}`")
    claims = _claims(form.get("subject_token", ""))
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    wrong = [
        f"`{name}` is `{claims.get(name)}`"
        for name, right in (
            ("iss", claims.get("iss") == policy.issuer),
            ("aud", any(one in policy.audiences for one in audiences)),
            (policy.subject_claim, claims.get(policy.subject_claim) == policy.subject),
            ("exp", float(claims.get("exp") or 0) > time.time()),
        )
        if not right
    ]
    if wrong:  # RFC 8693, 2.2.2
        said = f"the token does not match the federation policy: {', '.join(wrong)}"
        raise _refused(400, "invalid_request", said)
    return client


def _claims(jwt: str) -> dict[str, Any]:
    """What a token says (RFC 7519, 3)."""
    try:
        _, payload, _ = jwt.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise _refused(400, "invalid_request", "subject_token is no JWT")
    return claims


def _refused(status: int, error: str, description: str, **headers: str) -> ApiError:
    """RFC 6749, 5.2."""
    body = json.dumps({"error": error, "error_description": description}).encode()
    shape = {"Content-Type": "application/json;charset=UTF-8", **_NOT_KEPT, **headers}
    return ApiError(status, error, description, headers=shape, body=body)


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
