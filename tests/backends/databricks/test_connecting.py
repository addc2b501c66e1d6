"""Hosts that refuse, are silent or do not like the credentials."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.backends.databricks.api import connection as connection_module
from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection, person_of
from sgpu_decl.errors import BackendError
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import Effect, WorkspaceServer
from tests.backends.databricks.bench import DatabricksBench


@pytest.fixture
def silent() -> Iterator[str]:
    """A host that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def connect(monkeypatch: pytest.MonkeyPatch, host: str) -> BackendError:
    monkeypatch.setenv("DATABRICKS_HOST", host)
    with pytest.raises(BackendError) as caught:
        Connection(Account()).client  # noqa: B018
    return caught.value


@pytest.fixture
def connected(project: Path, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A connection that asks once."""
    monkeypatch.setattr(connection_module, "RETRY_SECONDS", 1)
    connection = Connection(Account())
    connection.client  # noqa: B018
    return connection


def refused(connected: Connection) -> BackendError:
    """How a question ends."""
    with pytest.raises(BackendError) as caught:
        connected.ask("looking at run 7", "/api/2.2/jobs/runs/get", run_id=7)
    return caught.value


def test_a_silent_host_is_given_up_by_its_name(
    token: str, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setattr(connection_module, "PATIENCE", 0.5)

    error = connect(monkeypatch, silent)

    assert (error.code, error.retryable) == ("host_unreachable", True)
    assert silent in error.message
    assert "VPN" in str(error.hint)


@pytest.mark.expensive
def test_a_host_that_refuses_connections_is_named(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"http://127.0.0.1:{closed.getsockname()[1]}"
        error = connect(monkeypatch, host)  # the port is ours, and nothing listens on it

    assert error.code == "host_unreachable"
    assert host in error.message


def test_no_credentials_say_how_to_get_some(
    server: WorkspaceServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_TOKEN")
    monkeypatch.setenv("DATABRICKS_AUTH_TYPE", "pat")

    error = connect(monkeypatch, server.url)

    assert error.code == "no_credentials"
    assert f"databricks auth login --host {server.url}" in str(error.hint)


def test_nobody_opens_a_browser_where_nobody_sits(
    server: WorkspaceServer, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HOST", "TOKEN"):
        monkeypatch.delenv(f"DATABRICKS_{name}")
    (tmp_path / "databrickscfg").write_text(
        f"[DEFAULT]\nhost = {server.url}\nauth_type = external-browser\n"
    )
    (tmp_path / "browser").write_text('#!/bin/sh\ntouch "$0.opened"\n')
    (tmp_path / "browser").chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{tmp_path / 'browser'} %s")

    ran = subprocess.run(
        [sys.executable, "-m", "sgpu_decl", "apply", "-y", "run.yaml"],
        cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 1
    assert "there is no terminal" in ran.stderr
    assert "databricks auth login --profile DEFAULT" in ran.stderr
    assert not (tmp_path / "browser.opened").exists()


@pytest.mark.parametrize(
    ("status", "name", "code", "again"),
    [
        (401, "UNAUTHENTICATED", "unauthenticated", False),
        (403, "PERMISSION_DENIED", "permission_denied", False),
        (400, "INVALID_PARAMETER_VALUE", "remote_refused", False),
        (404, "RESOURCE_DOES_NOT_EXIST", "remote_missing", False),
        (409, "RESOURCE_CONFLICT", "remote_refused", False),
        (500, "INTERNAL_ERROR", "remote_broken", True),
        (503, "TEMPORARILY_UNAVAILABLE", "unavailable", True),
        (429, "REQUEST_LIMIT_EXCEEDED", "throttled", True),
        (429, "RESOURCE_EXHAUSTED", "limit_reached", True),
        (403, "QUOTA_EXCEEDED", "no_room", False),
        (507, "INSUFFICIENT_STORAGE", "no_room", False),
    ],
)
def test_answers_of_the_workspace_become_errors_of_ours(
    bench: DatabricksBench, connected: Connection, status: int, name: str, code: str, again: bool
) -> None:
    bench.refuse("GET */jobs/runs/get", status, name, "as the test wants it", times=0)

    error = refused(connected)

    assert (error.code, error.retryable) == (code, again)
    assert error.message.startswith("looking at run 7: ")
    assert "Config:" not in error.message, "the SDK's settings are no business of ours"
    assert error.hint


def test_a_connection_that_is_cut_says_so(bench: DatabricksBench, connected: Connection) -> None:
    bench.fault("GET */jobs/runs/get", Effect.CUT, times=0)

    error = refused(connected)

    assert (error.code, error.retryable) == ("connection_lost", True)
    assert "(remote end closed connection without response)" in error.message


def test_pages_without_an_end_are_an_error(bench: DatabricksBench, connected: Connection) -> None:
    body = {"jobs": [], "next_page_token": "again"}
    bench.fault("GET */jobs/list", status_code=200, times=0, body=body)
    with pytest.raises(BackendError, match="the same next page again") as caught:
        list(connected.pages("listing jobs", "/api/2.2/jobs/list"))
    assert caught.value.code == "remote_broken"


@pytest.mark.parametrize(
    ("code", "said"),
    [("403", "Invalid access token."), ("PERMISSION_DENIED", "Invalid Token")],
)
def test_a_token_that_has_expired_is_no_lack_of_permission(
    bench: DatabricksBench, code: str, said: str
) -> None:
    """What a workspace answers to a wrong or expired token: 403, and these words."""
    bench.refuse("GET */scim/v2/Me", 403, code, said)

    with pytest.raises(BackendError) as caught:
        Connection(Account()).client  # noqa: B018

    assert caught.value.code == "unauthenticated"
    assert "databricks auth login" in str(caught.value.hint)


class Waits:
    def __init__(self) -> None:
        self.phases: list[str] = []

    def advance(self, phase: str, done: int, total: int) -> None:
        self.phases.append(phase)


@pytest.mark.expensive
def test_an_apply_waits_for_a_slow_login_and_says_so_where_a_plan_goes_on_without(
    bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Profile().value("login-patience") == connection_module.FIRST_ANSWER
    monkeypatch.setattr(connection_module, "PATIENCE", 0.2)
    monkeypatch.setattr(connection_module, "_NOTICE", 0.1)
    bench.fault("GET */scim/v2/Me", Effect.DELAY, seconds=3)
    opened, told = bench.open(), Waits()

    plan = opened.plan()
    opened.stage(plan, progress=told)
    applied = opened.apply(plan)

    (check,) = [item for item in plan.plan.checks if item.code == "host_unreachable"]
    assert "`apply` asks again, and waits up to 60 s" in check.summary
    assert "fail" not in check.summary
    assert not plan.plan.complete
    assert not applied.failed
    assert "connecting" in told.phases
    opened.runs.wait(applied.launched, timeout=120)


PLAN = """\
import sys
from sgpu_decl.cli.main import main
code = main(["plan", "run.yaml"])
heavy = [it for it in sys.modules if it.partition(".")[0] in ("databricks", "requests")]
sys.exit(str(heavy) if heavy else code)
"""


def plan(project: Path) -> "subprocess.CompletedProcess[str]":
    """Plan in a process of its own, which fails if it imports the SDK."""
    return subprocess.run(
        [sys.executable, "-c", PLAN], cwd=project, capture_output=True, text=True, check=False
    )


def test_the_sdk_is_not_imported_without_a_run_on_databricks(project: Path) -> None:
    (project / "run.yaml").write_text("name: r\ngpus: 1\ntype: CPU\ncommand: [echo, hi]\n")
    assert (ran := plan(project)).returncode == 0, ran.stderr


@pytest.mark.expensive
def test_a_plan_that_has_all_answers_does_not_connect(
    bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "databricks.sdk" in plan(bench.project).stderr, "it has to ask"
    asked = len(bench.requests())

    again = plan(bench.project)

    assert again.returncode == 0, again.stderr
    assert len(bench.requests()) == asked > 0
    monkeypatch.setenv("DATABRICKS_TOKEN", f"{bench.token[:-1]}-")
    assert "databricks.sdk" in plan(bench.project).stderr, "these may be somebody else's"


def test_a_service_principal_is_named_by_its_display_name() -> None:
    number = "3f7b1c2e-9a40-4f3e-8a75-0c1d2e3f4a5b"
    assert person_of({"userName": number, "displayName": "nightly runner"}) == "nightly runner"
    assert person_of({"userName": number}) == number
    assert person_of({"userName": "ann@example.com", "displayName": "Ann B"}) == "ann@example.com"
