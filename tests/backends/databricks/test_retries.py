"""Attempts of the platform's own, which cost GPUs: none is made in vain."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.plan import Reason
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import RunRecords
from sgpu_decl.views.status_json import status_objects
from tests.support import PATIENCE

Opened = Callable[[], Session]
FAILING = "def main(n):\n    raise ValueError('no such thing')\n"
# Nodes know by the marker which run this is: one fails when it is there, or takes it away.
MARKED = """\
import glob, os, time
def main(n):
    pattern = os.environ["RUNS"] + "/*/.sgpu/runs/*/hello/*/submitted.json"
    while not glob.glob(pattern):
        time.sleep(0.01)
    raise ValueError("no such thing")
"""
KILLED = MARKED.replace('raise ValueError("no such thing")', "os.kill(os.getpid(), 9)")
SLOW = MARKED.replace('raise ValueError("no such thing")', "time.sleep(600)")
UNMARKED = MARKED.replace("    raise", "    os.unlink(glob.glob(pattern)[0])\n    raise")


def ended(session: Session) -> AttemptRef:
    (ref,) = session.apply(session.plan()).launched
    session.runs.wait([ref], timeout=PATIENCE)
    session.record_ended()
    return ref


def write(project: Path, source: str, more: str, tenant: Path | None = None) -> None:
    run = (project / "run.yaml").read_text().replace("gpus: 2", "gpus: 1")
    variables = f"variables: {{RUNS: '{tenant}/Workspace/Users'}}"
    run = run.replace("{base: gpu-6}", f"{{base: gpu-6, {variables}}}") if tenant else run
    (project / "run.yaml").write_text(run + more)
    (project / "train.py").write_text(source)


def attempts(server: WorkspaceServer, token: str) -> int:
    """How often the platform started the one run that there is."""
    (run,) = RunRecords(server.tenants.of_token(token)).all()
    return len(run.attempts)


@pytest.fixture
def profiled(server: WorkspaceServer) -> WorkspaceServer:
    """A workspace whose nodes have credentials in a profile alone."""
    return server


@pytest.fixture
def generous(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkspaceServer]:
    """A workspace that gives nodes credentials in variables, to the user with this token."""
    settings = ExecutionSettings(grace=1.0, generous=True)
    with WorkspaceServer(tmp_path / "generous", execution=settings) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.url)
        server.admit(token)
        yield server


@pytest.mark.parametrize(
    "workspace", ["profiled", pytest.param("generous", marks=pytest.mark.expensive)]
)
def test_a_node_ends_the_run_when_its_code_has_failed(
    request: pytest.FixtureRequest, session: Opened, project: Path, token: str, workspace: str
) -> None:
    server: WorkspaceServer = request.getfixturevalue(workspace)
    write(project, MARKED, "retry: {max: 3}\n", server.tenants.of_token(token).folder)
    opened = session()

    ref = ended(opened)

    status = opened.runs.status(ref)
    assert (status.state, status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "no such thing" in told["first_cause"]["traceback"]
    assert attempts(server, token) == 1
    lines = [log.text for log in opened.runs.logs(ref, ranks=None, follow=False) if log is not None]
    assert any("no further attempt is made" in line for line in lines)
    (change,) = session().plan().plan.changes
    assert change.reason is Reason.FAILED_NOT_RETRIED


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("source", "more", "failure"),
    [
        (KILLED, "retry: {max: 1}\n", FailureClass.KILLED),
        (SLOW, "retry: {max: 3, on: [infra, error]}\ntimeout: 5s\n", FailureClass.TIMEOUT),
    ],
    ids=["all starts are used up", "its time is over"],
)
def test_no_nodes_are_brought_on_which_no_rank_would_start(
    session: Opened, project: Path, server: WorkspaceServer, token: str, tenant: Path,
    source: str, more: str, failure: FailureClass,
) -> None:  # fmt: skip
    write(project, source, more, tenant)
    opened = session()

    ref = ended(opened)

    status = opened.runs.status(ref)
    assert (status.state, status.failure) == (AttemptState.FAILED, failure)
    assert attempts(server, token) == 1


@pytest.mark.expensive
def test_whoever_follows_ends_it_where_nodes_cannot(
    session: Opened, project: Path, server: WorkspaceServer, token: str, tenant: Path
) -> None:
    write(project, UNMARKED, "retry: {max: 30}\n", tenant)
    opened = session()

    ref = ended(opened)

    status = opened.runs.status(ref)
    assert (status.state, status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    assert attempts(server, token) < 31


def test_a_run_that_is_to_send_mail_when_it_fails_is_not_cancelled(
    session: Opened, project: Path, server: WorkspaceServer, token: str
) -> None:
    mail = "on_finish: {failure: [a@example.com]}\n"
    write(project, FAILING, f"retry: {{max: 1}}\n{mail}")
    opened = session()

    ref = ended(opened)

    assert opened.runs.status(ref).failure is FailureClass.EXCEPTION
    assert attempts(server, token) == 2
    (run,) = RunRecords(server.tenants.of_token(token)).all()
    assert not run.cancelled


@pytest.mark.parametrize(
    ("more", "words", "hint"),
    [
        ("retry: {max: 2}\ntimeout: 3h\n", "at most 3 attempts of 3h each, 9 GPU hours in all",
         "no further attempt is made"),
        ("retry: {max: 1}\n", "a node `GPU_1xA10` once more: at most 2",
         "no further attempt is made"),
        ("retry: {max: 1}\non_finish: {failure: [a@b.c]}\n", "at most 2 attempts",
         "sends no such mail"),
    ],
)  # fmt: skip
def test_the_plan_says_what_a_retry_may_cost(
    session: Opened, project: Path, more: str, words: str, hint: str
) -> None:
    write(project, FAILING, more)

    check = {item.code: item for item in session().plan().plan.checks}["retry_cost"]

    assert str(check.severity) == "info"
    assert words in check.summary
    assert hint in str(check.hint)
    assert check.place is not None


@pytest.mark.parametrize("more", ["", "retry: {max: 2, on: [error]}\n"])
def test_ranks_that_start_again_on_their_nodes_cost_no_new_ones(
    session: Opened, project: Path, more: str
) -> None:
    write(project, FAILING, more)

    assert "retry_cost" not in {check.code for check in session().plan().plan.checks}
