"""The SDK's chain of logins, whose failures are errors of ours.

A login is looked for when the SDK is configured, and used, or renewed, with each request. What it
raises then is of any class: `ValueError` for the answer of a token endpoint (`retrieve_token` in
`databricks/sdk/oauth.py`), `OSError` for a command of a client (`CliTokenSource` in
`credentials_provider.py`), errors of Google's library, "implementation specific exceptions"
(`IdTokenSource` in `oidc.py`). Only here is it known that a login raised it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.errors import BackendError

if TYPE_CHECKING:
    from databricks.sdk.config import Config
    from databricks.sdk.credentials_provider import CredentialsProvider
    from databricks.sdk.oauth import Token

_LONGEST = 300  # characters of an answer

_FEDERATION = (
    "compare the federation policy of the service principal with the token of this job: `issuer`, "
    "`subject` and `audiences` (DATABRICKS_TOKEN_AUDIENCE), and DATABRICKS_CLIENT_ID with its "
    "application ID"
)
_CHECKS: Mapping[str, str] = MappingProxyType(
    {
        "oauth-m2m": "check that DATABRICKS_CLIENT_ID is the application ID of a service principal "
        "of this workspace, and that DATABRICKS_CLIENT_SECRET is one of its OAuth secrets and has "
        "not expired",
        "github-oidc": _FEDERATION + ". The job needs `permissions: {{id-token: write}}`",
        "env-oidc": f"{_FEDERATION}. The token is in DATABRICKS_OIDC_TOKEN, or in the variable "
        "that DATABRICKS_OIDC_TOKEN_ENV names",
        "file-oidc": f"{_FEDERATION}. DATABRICKS_OIDC_TOKEN_FILEPATH names the file of the token",
        "azure-devops-oidc": f"{_FEDERATION}. The step needs SYSTEM_ACCESSTOKEN",
        "azure-client-secret": "check ARM_CLIENT_ID, ARM_CLIENT_SECRET and ARM_TENANT_ID",
        "github-oidc-azure": "check ARM_CLIENT_ID and ARM_TENANT_ID, and the federated credential "
        "of that application. The job needs `permissions: {{id-token: write}}`",
        "azure-cli": "log in again: `az login`",
        "databricks-cli": "install the Databricks CLI, and log in again: "
        "`databricks auth login --host {host}`",
        "google-credentials": "check GOOGLE_CREDENTIALS: the key of a service account, as JSON or "
        "as the path of a file",
        "google-id": "check DATABRICKS_GOOGLE_SERVICE_ACCOUNT, and log in again: `gcloud auth "
        "application-default login`",
        "metadata-service": "check DATABRICKS_METADATA_SERVICE_URL",
        "pat": "set DATABRICKS_TOKEN, or `token` in the profile; or log in with "
        "`databricks auth login --host {host}`",
    }
)
"""What to check of a login that is refused, or that lacks something, by its kind (`auth_type`)."""
_OF_AZURE = frozenset({"azure-client-secret", "github-oidc-azure"})
_OF_CLIENT = frozenset({"azure-devops-oidc", "env-oidc", "file-oidc", "github-oidc", "oauth-m2m"})
"""The kinds of login that are those of an application, by which variables."""
_LATER = frozenset(
    {
        "INTERNAL_ERROR", "REQUEST_LIMIT_EXCEEDED", "TEMPORARILY_UNAVAILABLE", "server_error",
        "temporarily_unavailable",
    }
)  # fmt: skip
"""Codes of answers that are no refusal: those of RFC 6749 (4.1.2.1), and the platform's own."""


_OTHER = "check the settings of this kind of login, in the variables or in the profile"


class ExplainedLogin:
    """A strategy of the SDK: its own chain, whose logins raise `BackendError` where they are
    refused. Errors of the network pass: the SDK repeats them. `host` is the workspace's URL."""

    def __init__(self, host: str) -> None:
        from databricks.sdk.credentials_provider import DefaultCredentials

        self._host = host
        self._chain = DefaultCredentials()

    def auth_type(self) -> str:
        """The kind of the login that was found."""
        return self._chain.auth_type()

    def __call__(self, cfg: "Config") -> "CredentialsProvider":
        """Raises ValueError where the chain has no login for this host."""
        from databricks.sdk.credentials_provider import OAuthCredentialsProvider

        try:
            login = self._chain(cfg)
        except ValueError as error:
            if error.__cause__ is None:
                raise  # there is none
            kind = str(error).partition(":")[0]
            raise _refused(self._host, cfg, kind, error.__cause__) from error
        kind = self.auth_type()

        def headers() -> dict[str, str]:
            with _explained(self._host, cfg, kind):
                return login()

        def token() -> "Token":
            with _explained(self._host, cfg, kind):
                return login.oauth_token()  # type: ignore[attr-defined,no-any-return]  # its class has it

        oauth = isinstance(login, OAuthCredentialsProvider)
        return OAuthCredentialsProvider(headers, token) if oauth else headers


def checks_of(kind: str | None, host: str) -> str | None:
    """What to check of a login of that kind; None where none was asked for."""
    return _CHECKS.get(kind, _OTHER).format(host=host) if kind else None


@contextmanager
def _explained(host: str, cfg: "Config", kind: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        refused = _refused(host, cfg, kind, error)
        if refused is error:
            raise
        raise refused from error


def _refused(host: str, cfg: "Config", kind: str, error: BaseException) -> BaseException:
    """What is raised for an error of a login."""
    import requests

    if isinstance(error, BackendError | requests.ConnectionError | requests.Timeout):
        return error
    words = _words(error)
    for secret in (cfg.client_secret, cfg.azure_client_secret, cfg.token, cfg.password):
        words = words.replace(secret, "***") if secret else words
    later = words.partition(":")[0] in _LATER
    # A token file or the program of a client that is not there is not refused by anybody.
    lacking = isinstance(error, FileNotFoundError | PermissionError)
    client = cfg.azure_client_id if kind in _OF_AZURE else cfg.client_id
    who = f" of `{client}`" if client and (kind in _OF_AZURE or kind in _OF_CLIENT) else ""
    refused = BackendError(
        f"the login{who} to `{host}` by `{kind}` {'failed' if lacking else 'was refused'}: {words}",
        hint="try again in a minute" if later else checks_of(kind, host),
        code="unavailable" if later else "no_credentials" if lacking else "unauthenticated",
    )
    refused.retryable = later
    return refused


def _words(error: BaseException) -> str:
    """What the provider said. The SDK gives an answer that is no JSON as bytes."""
    first = error.args[0] if error.args else ""
    text = first.decode("utf-8", "replace") if isinstance(first, bytes) else str(error)
    line = " ".join(text.split()) or type(error).__name__
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
