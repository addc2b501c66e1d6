"""Attempts of the platform's own, which cost GPUs: none is made in vain."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.plan import Reason
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.backends.databricks.bench import FAILS, DatabricksBench

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


def write(bench: DatabricksBench, source: str, more: str) -> None:
    """Have one rank run this code, which knows where launch folders lie."""
    variables = f"variables: {{RUNS: '{bench.tenant.folder}/Workspace/Users'}}"
    bench.declare("gpus: 2", "gpus: 1")
    bench.declare("{base: gpu-6}", f"{{base: gpu-6, {variables}}}", more)
    bench.code(source)


def attempts(bench: DatabricksBench) -> int:
    """How often the platform started the one run that there is."""
    (run,) = bench.records.all()
    return len(run.attempts)


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
    "workspace", ["server", pytest.param("generous", marks=pytest.mark.expensive)],
    ids=["credentials in a profile", "credentials in variables"],
)  # fmt: skip
def test_a_node_ends_the_run_when_its_code_has_failed(
    request: pytest.FixtureRequest, project: Path, token: str, workspace: str
) -> None:
    bench = DatabricksBench(project, request.getfixturevalue(workspace), token)
    write(bench, MARKED, "retry: {max: 3}\n")

    run = bench.run()

    assert (run.status.state, run.status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    assert "no such thing" in run.cause["traceback"]
    assert attempts(bench) == 1
    assert any("no further attempt is made" in line for line in run.texts())
    assert bench.change().reason is Reason.FAILED_NOT_RETRIED


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
    bench: DatabricksBench, source: str, more: str, failure: FailureClass
) -> None:
    write(bench, source, more)

    run = bench.run()

    assert (run.status.state, run.status.failure) == (AttemptState.FAILED, failure)
    assert attempts(bench) == 1


@pytest.mark.expensive
def test_whoever_follows_ends_it_where_nodes_cannot(bench: DatabricksBench) -> None:
    write(bench, UNMARKED, "retry: {max: 30}\n")

    run = bench.run()

    assert (run.status.state, run.status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    assert attempts(bench) < 31


def test_a_run_that_is_to_send_mail_when_it_fails_is_not_cancelled(bench: DatabricksBench) -> None:
    write(bench, FAILS, "retry: {max: 1}\non_finish: {failure: [a@example.com]}\n")

    assert bench.run().status.failure is FailureClass.EXCEPTION

    assert attempts(bench) == 2
    assert not bench.records.all()[0].cancelled


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
    bench: DatabricksBench, more: str, words: str, hint: str
) -> None:
    write(bench, FAILS, more)

    check = bench.checks()["retry_cost"]

    assert str(check.severity) == "info"
    assert words in check.summary
    assert hint in str(check.hint)
    assert check.place is not None


@pytest.mark.parametrize("more", ["", "retry: {max: 2, on: [error]}\n"])
def test_ranks_that_start_again_on_their_nodes_cost_no_new_ones(
    bench: DatabricksBench, more: str
) -> None:
    write(bench, FAILS, more)

    assert "retry_cost" not in bench.checks()
