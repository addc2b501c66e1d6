"""Logins that are refused, or lack something, by each kind of login that the SDK knows."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.errors import BackendError
from sgpu_decl.testing.workspace import FederationPolicy, WorkspaceServer
from tests.http_servers import QuietThreadingServer
from tests.support import shell_program

PRINCIPAL = "0a1b2c3d-1111-4222-8333-000000000001"
ISSUER, SUBJECT, AUDIENCE = "https://issuer.example.com", "repo:team/vision", "account"


def jwt(**claims: object) -> str:
    """A token of the issuer; the emulator looks at its claims alone."""
    said = {"iss": ISSUER, "sub": SUBJECT, "aud": AUDIENCE, "exp": time.time() + 600, **claims}
    parts = ({"alg": "RS256"}, said)
    encoded = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts]
    return ".".join(one.rstrip("=") for one in (*encoded, "c2lnbmVk"))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkspaceServer]:
    """A workspace whose one principal has a secret, and trusts an issuer; nobody is logged in."""
    for name in ("TOKEN", "CONFIG_PROFILE", "AUTH_TYPE"):
        monkeypatch.delenv(f"DATABRICKS_{name}", raising=False)
    policy = FederationPolicy(issuer=ISSUER, subject=SUBJECT, audiences=(AUDIENCE,))
    root = tmp_path / "workspace"
    with WorkspaceServer(
        root, clients={PRINCIPAL: "right"}, federation={PRINCIPAL: policy}
    ) as server:
        monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("DATABRICKS_HOST", server.url)
        monkeypatch.setenv("DATABRICKS_CLIENT_ID", PRINCIPAL)
        yield server


@contextmanager
def github(token: str | None) -> Iterator[dict[str, str]]:
    """What GitHub gives a job to ask for its token, where it may; the variables of the job. As in
    https://docs.github.com/en/actions/reference/security/oidc."""
    import threading
    from http.server import BaseHTTPRequestHandler

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.path.endswith(f"&audience={AUDIENCE}") and token is not None
            self.send_response(200 if asked else 403)
            self.end_headers()
            self.wfile.write(json.dumps({"value": token}).encode())

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = QuietThreadingServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield {
            "DATABRICKS_AUTH_TYPE": "github-oidc",
            "DATABRICKS_TOKEN_AUDIENCE": AUDIENCE,
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"http://127.0.0.1:{server.server_port}/t?v=1",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "job",
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def user(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> str:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Connection(Account()).user


ENV_OIDC = {"DATABRICKS_AUTH_TYPE": "env-oidc"}
SECRET = {"DATABRICKS_CLIENT_SECRET": "wrong"}
STRANGER = {"DATABRICKS_CLIENT_ID": "stranger"}
NO_CLI = {"DATABRICKS_CLI_PATH": "/nowhere/databricks"}
REFUSED = {
    "a wrong secret": (SECRET, ("oauth-m2m", "invalid_client", PRINCIPAL), "OAuth secrets"),
    "an unknown principal": (
        SECRET | STRANGER, ("oauth-m2m", "invalid_client", "`stranger`"), "application ID",
    ),
    "a principal without a policy": (
        ENV_OIDC | STRANGER | {"DATABRICKS_OIDC_TOKEN": jwt()},
        ("env-oidc", "invalid_client", "no federation policy", "`stranger`"), "federation policy",
    ),
    "another subject": (
        ENV_OIDC | {"DATABRICKS_OIDC_TOKEN": jwt(sub="repo:team/other")},
        ("env-oidc", "invalid_request", "`sub` is `repo:team/other`"), "`subject`",
    ),
    "another audience": (
        ENV_OIDC | {"DATABRICKS_OIDC_TOKEN": jwt(aud="https://github.com/team")},
        ("`aud` is `https://github.com/team`", PRINCIPAL), "DATABRICKS_TOKEN_AUDIENCE",
    ),
    "a token that has expired": (
        ENV_OIDC | {"DATABRICKS_OIDC_TOKEN": jwt(exp=1)}, ("`exp` is `1`",), "federation policy",
    ),
    "no token at all": (
        ENV_OIDC | {"DATABRICKS_OIDC_TOKEN": "hello"}, ("no JWT",), "DATABRICKS_OIDC_TOKEN",
    ),
    "a refresh token that has expired": (
        {"DATABRICKS_AUTH_TYPE": "databricks-cli", "DATABRICKS_CLI_PATH": "{tmp}/databricks"},
        ("databricks-cli", "refresh token is invalid"), "databricks auth login",
    ),
    "a command that says no JSON": (
        {"DATABRICKS_AUTH_TYPE": "databricks-cli", "DATABRICKS_CLI_PATH": "{tmp}/noise"},
        ("databricks-cli", "cannot unmarshal"), "databricks auth login",
    ),
    "a key that is no JSON": (
        {"DATABRICKS_AUTH_TYPE": "google-credentials", "GOOGLE_CREDENTIALS": "{{"},
        ("google-credentials",), "GOOGLE_CREDENTIALS",
    ),
    "a key without an account": (
        {"DATABRICKS_AUTH_TYPE": "google-credentials", "GOOGLE_CREDENTIALS": "{{}}"},
        ("google-credentials",), "GOOGLE_CREDENTIALS",
    ),
}  # fmt: skip
MISSING = {
    "no variable": (ENV_OIDC, "DATABRICKS_OIDC_TOKEN"),
    "no file": (
        {
            "DATABRICKS_AUTH_TYPE": "file-oidc",
            "DATABRICKS_OIDC_TOKEN_FILEPATH": "{tmp}/nowhere",
        },
        "DATABRICKS_OIDC_TOKEN_FILEPATH",
    ),
    "no job of GitHub": ({"DATABRICKS_AUTH_TYPE": "github-oidc"}, "id-token: write"),
    "no client": ({"DATABRICKS_AUTH_TYPE": "databricks-cli", **NO_CLI}, "databricks auth login"),
    "no secret": ({"DATABRICKS_AUTH_TYPE": "oauth-m2m"}, "DATABRICKS_CLIENT_SECRET"),
}


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("case", REFUSED)
def test_a_login_that_is_refused_says_so_in_the_words_of_the_provider(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    environ, words, hint = REFUSED[case]
    shell_program(tmp_path / "databricks", 'echo "a refresh token is invalid" >&2; exit 1')
    shell_program(tmp_path / "noise", "echo hello")
    told = {name: value.format(tmp=tmp_path) for name, value in environ.items()}
    with pytest.raises(BackendError) as caught:
        user(monkeypatch, told)
    assert caught.value.code == "unauthenticated", caught.value.message
    assert all(word in caught.value.message for word in words), caught.value.message
    assert hint in str(caught.value.hint)
    assert "wrong" not in caught.value.message
    assert "Config:" not in caught.value.message


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("case", MISSING)
def test_a_login_that_lacks_something_says_what_its_kind_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    environ, hint = MISSING[case]
    told = {name: value.format(tmp=tmp_path) for name, value in environ.items()}
    with pytest.raises(BackendError) as caught:
        user(monkeypatch, told)
    assert caught.value.code == "no_credentials", caught.value.message
    assert environ["DATABRICKS_AUTH_TYPE"] in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.usefixtures("workspace")
def test_a_job_of_github_logs_in_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with github(jwt()) as environ:
        assert user(monkeypatch, environ) == PRINCIPAL
    with github(jwt(sub="repo:team/fork")) as environ, pytest.raises(BackendError) as caught:
        user(monkeypatch, environ)
    assert caught.value.code == "unauthenticated"
    assert "`sub` is `repo:team/fork`" in caught.value.message
    with github(None) as environ, pytest.raises(BackendError) as caught:
        user(monkeypatch, environ)
    assert caught.value.code == "no_credentials"
    assert "id-token: write" in str(caught.value.hint)


@pytest.mark.usefixtures("workspace")
def test_a_login_by_a_file_of_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{jwt()}\n")
    environ = {"DATABRICKS_OIDC_TOKEN_FILEPATH": str(tmp_path / "token")}
    assert user(monkeypatch, {"DATABRICKS_AUTH_TYPE": "file-oidc", **environ}) == PRINCIPAL
