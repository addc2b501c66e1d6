"""Runs on a workspace from plan to destroy, through the real SDK.

What every backend does is in `backend_contract`: that a cancelled run stays cancelled, that a
replaced attempt ends first, that none waits in line, and that an attempt is found from elsewhere.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.api import PlanOptions
from sgpu_decl.backends.databricks.watching import run_status
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.testing.workspace import Effect
from tests.backends.databricks.bench import FAILS, SLEEPS, DatabricksBench, Launched
from tests.support import PATIENCE, until


def test_a_run_is_launched_and_what_it_did_comes_back(bench: DatabricksBench) -> None:
    run = bench.run()

    told = run.told
    assert (told["state"], told["exit_code"], told["backend"]) == ("succeeded", 0, "databricks")
    assert [item["state"] for item in told["ranks"]] == ["succeeded", "succeeded"]
    assert run.results == [{"rank": rank, "value": {"rank": rank, "n": 3}} for rank in (0, 1)]
    assert {(line.rank, line.stream, line.text) for line in run.lines()} >= {
        (rank, stream, text)
        for rank in (0, 1)
        for stream, text in (("stdout", f"hello from {rank}"), ("stderr", "and more"))
    }
    change = bench.change()
    assert (change.action, change.reason) == (Action.NO_OP, Reason.UP_TO_DATE)


@pytest.mark.expensive
def test_lines_of_one_rank_can_be_followed(bench: DatabricksBench) -> None:
    followed = bench.launch().lines(1, follow=True)

    assert [(item.rank, item.text) for item in followed] == [(1, "hello from 1"), (1, "and more")]


@pytest.mark.expensive
def test_following_looks_up_between_runs_that_are_far_away(bench: DatabricksBench) -> None:
    bench.declare("args: {n: 3}\n", "matrix: {n: [1, 2]}\n")
    opened = bench.open()
    refs = opened.apply(opened.plan()).launched
    opened.runs.wait(refs, timeout=PATIENCE)
    bench.fault("GET */runs/get", Effect.DELAY, seconds=0.1, times=0)

    followed = list(bench.open().runs.follow(refs, ranks=(7,)))  # none has it, so no lines come

    assert followed[0] is None, "before the second run was asked about"
    assert {item.state for item in followed if isinstance(item, AttemptView)} == {
        AttemptState.SUCCEEDED
    }


def misname(bench: DatabricksBench, **arguments: Any) -> None:
    """The platform calls a failure of the next run something else (evidence: A4)."""
    bench.hook("misname", **arguments)


@pytest.mark.parametrize(
    "ending",
    [None, *(pytest.param(one, marks=pytest.mark.expensive)
             for one in ("platform", "driver", "node_lost"))],
)  # fmt: skip
def test_a_failure_of_the_users_code_stays_one_whatever_the_platform_calls_it(
    bench: DatabricksBench, ending: str | None
) -> None:
    bench.code(FAILS)
    if ending is not None:
        misname(bench, ending=ending, message="Workload failed on node 0 with exit code 1")

    run = bench.run()

    status, cause = run.status, run.cause
    assert (status.state, status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    assert "no such thing" in cause["summary"]
    assert "train.py" in cause["traceback"]
    assert bench.change().reason is Reason.FAILED_NOT_RETRIED


def test_a_quota_that_is_used_up_is_no_capacity(bench: DatabricksBench) -> None:
    quota = "System error occurred: Workspace has exceeded its GPU quota for GPU_1xA10."
    misname(bench, ending="platform", message=quota, at_once=True)

    run = bench.run()

    assert run.status.failure is FailureClass.CAPACITY
    assert "exceeded its GPU quota" in run.cause["summary"]


def test_a_node_that_is_lost_is_the_platforms_fault(bench: DatabricksBench) -> None:
    bench.code(SLEEPS)
    bench.hook("lose_node", node=0, after_lines=0)

    status = bench.run().status

    assert status.state is AttemptState.FAILED
    assert status.failure in (FailureClass.NODE_LOST, FailureClass.CAPACITY)
    assert bench.change().reason is Reason.PREVIOUS_FAILED


@pytest.mark.expensive
def test_what_was_uploaded_is_not_uploaded_again(bench: DatabricksBench) -> None:
    bench.run()
    bench.forget_requests()

    bench.launch(rerun=("hello",))

    asked = bench.requests()
    assert not [path for path in bench.uploads() if "/objects/" in path]
    assert len(asked) <= 13, [f"{item.method} {item.path}" for item in asked]


def test_an_answer_that_is_lost_after_the_submit_makes_no_second_run(
    bench: DatabricksBench,
) -> None:
    bench.fault("POST */runs/submit", Effect.LOSE_ANSWER)

    assert bench.run().status.state is AttemptState.SUCCEEDED

    assert [item.status for item in bench.requests("/runs/submit")] == [0, 200]
    assert bench.runs == 1


def run_id_of(run: Launched) -> int:
    """The run that `hello#1` became, as the machine that launched it remembers."""
    memory = json.loads((run.session.state_dir / "runs/hello/1/databricks.json").read_text())
    return int(memory["marker"]["run_id"])


@pytest.fixture
def delete(bench: DatabricksBench) -> Callable[[Launched], None]:
    """Somebody deletes a run of the workspace, once it has ended."""

    def delete(run: Launched) -> None:
        records, run_id = bench.records, run_id_of(run)
        until(lambda: not records.need(run_id).active)
        records.delete(run_id)

    return delete


@pytest.mark.expensive
def test_a_run_that_somebody_deleted_is_lost_and_said_so(
    bench: DatabricksBench, delete: Callable[[Launched], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_status, "SETTLING", 0.0)
    run = bench.launch()
    delete(run)

    again = Launched(bench.open(), run.ref)

    assert again.status.state is AttemptState.LOST
    assert f"run {run_id_of(run)} is no longer in" in again.cause["summary"]
    (change,) = again.session.plan().plan.changes
    assert change.reason is Reason.PREVIOUS_LOST
    with pytest.raises(NotFound, match="has no log of `hello#1`"):
        again.lines()


def test_a_run_that_was_shown_and_is_deleted_is_lost_at_once(
    bench: DatabricksBench, delete: Callable[[Launched], None]
) -> None:
    bench.code(SLEEPS)
    run = bench.launch()
    assert run.status.state.active
    WorkspaceClient().jobs.cancel_run(run_id_of(run))
    delete(run)

    assert Launched(bench.open(), run.ref).status.state is AttemptState.LOST


def test_a_run_that_somebody_just_deleted_can_be_cancelled(
    bench: DatabricksBench, delete: Callable[[Launched], None]
) -> None:
    run = bench.launch()
    delete(run)

    bench.open().runs.cancel(run.ref)


def test_an_expired_token_says_what_to_do(bench: DatabricksBench) -> None:
    bench.refuse("GET */scim/v2/Me", 401, "UNAUTHENTICATED", "Token is expired", times=0)

    with pytest.raises(BackendError) as caught:
        bench.launch()

    assert caught.value.code == "unauthenticated"
    assert "databricks auth login --host" in str(caught.value.hint)


@pytest.mark.expensive
def test_destroying_frees_what_no_other_attempt_needs(bench: DatabricksBench) -> None:
    first = bench.run()
    text = (bench.project / "run.yaml").read_text()
    (bench.project / "other.yaml").write_text(text.replace("hello", "two"))
    bench.run(bench.open("other.yaml"))
    staging, destroy = bench.staging, PlanOptions(destroy=True)
    assert len(list(staging.glob("objects/code/*"))) == 1

    opened = bench.open()
    opened.apply(opened.plan(destroy))

    assert not (list(staging.glob("runs/*/hello/*/spec.json")))
    assert list(staging.glob("runs/*/hello/*/back/0/node_0/report.json"))
    assert len(list(staging.glob("objects/code/*"))) == 1, "the other run needs it"
    other = bench.open("other.yaml")
    other.apply(other.plan(destroy))
    assert not list(staging.glob("objects/*/*"))
    assert len(Launched(bench.open(), first.ref).results) == 2


def test_gc_leaves_nothing_of_an_earlier_attempt_in_the_workspace(bench: DatabricksBench) -> None:
    bench.run()
    bench.run(rerun=("hello",))

    bench.open().gc(keep_last=0, older_than=None, dry_run=False)

    (kept,) = bench.staging.glob("runs/*/hello/*")  # the newest success
    assert kept.name.startswith("2-")


@pytest.mark.expensive
def test_a_destroyed_active_run_is_stopped_and_freed_once_it_has_ended(
    bench: DatabricksBench,
) -> None:
    bench.code(SLEEPS)
    run = bench.launch()
    run.up()

    again = bench.open()
    again.apply(again.plan(PlanOptions(destroy=True)))
    Launched(again, run.ref).ended()

    assert not list(bench.staging.glob("objects/*/*"))
    assert not list(bench.staging.glob("runs/*/hello/*/spec.json"))


@pytest.mark.expensive
def test_a_matrix_shares_what_is_uploaded(bench: DatabricksBench) -> None:
    bench.declare("args: {n: 3}\n", "matrix: {n: [1, 2, 3]}\n")
    opened = bench.open()

    refs = opened.apply(opened.plan()).launched

    opened.runs.wait(refs, timeout=PATIENCE)
    values = [Launched(opened, ref).results[0]["value"] for ref in refs]
    assert sorted(value["n"] for value in values) == [1, 2, 3]
    shared = [item for item in bench.uploads() if "/objects/" in item]
    assert len(shared) == 2, "code and agent, once each"
