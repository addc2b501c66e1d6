"""Runs on a workspace from plan to destroy, through the real SDK."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from sgpu_decl.views.status_json import status_objects
from tests.backends.databricks.test_staging import uploads
from tests.support import PATIENCE, until

Opened = Callable[[], Session]


def launched(session: Session) -> AttemptRef:
    (ref,) = session.apply(session.plan()).launched
    return ref


def ended(session: Session) -> AttemptRef:
    ref = launched(session)
    session.runs.wait([ref], timeout=PATIENCE)
    session.record_ended()
    return ref


def submits(server: WorkspaceServer, token: str) -> list[int]:
    key = server.tenants.of_token(token).key
    asked = server.recording.all(key)
    return [item.status for item in asked if item.path.endswith("/runs/submit")]


def run_id_of(opened: Session) -> int:
    """The run that `hello#1` became, as the machine that launched it remembers."""
    memory = json.loads((opened.state_dir / "runs/hello/1/databricks.json").read_text())
    return int(memory["marker"]["run_id"])


def runs_of(server: WorkspaceServer, token: str) -> int:
    """How many runs there are in the workspace."""
    from sgpu_decl.testing.workspace.executing.records import RunRecords

    return len(RunRecords(server.tenants.of_token(token)).all())


def test_a_run_is_launched_and_what_it_did_comes_back(session: Opened) -> None:
    opened = session()

    ref = ended(opened)

    (told,) = status_objects(opened.runs.describe([ref]))
    assert (told["state"], told["exit_code"], told["backend"]) == ("succeeded", 0, "databricks")
    assert [item["state"] for item in told["ranks"]] == ["succeeded", "succeeded"]
    assert opened.runs.results(ref) == [
        {"rank": 0, "value": {"rank": 0, "n": 3}},
        {"rank": 1, "value": {"rank": 1, "n": 3}},
    ]
    lines = {(line.rank, line.stream, line.text) for line in _lines(opened, ref)}
    assert lines >= {
        (rank, stream, text)
        for rank in (0, 1)
        for stream, text in (("stdout", f"hello from {rank}"), ("stderr", "and more"))
    }
    (plan,) = session().plan().plan.changes
    assert (plan.action, plan.reason) == (Action.NO_OP, Reason.UP_TO_DATE)


@pytest.mark.expensive
def test_lines_of_one_rank_can_be_followed(session: Opened) -> None:
    opened = session()
    ref = launched(opened)

    followed = [log for log in opened.runs.logs(ref, ranks=(1,), follow=True) if log is not None]

    assert [(item.rank, item.text) for item in followed] == [(1, "hello from 1"), (1, "and more")]


@pytest.mark.expensive
def test_following_looks_up_between_runs_that_are_far_away(
    session: Opened, project: Path, server: WorkspaceServer, token: str
) -> None:
    run = (project / "run.yaml").read_text().replace("args: {n: 3}\n", "matrix: {n: [1, 2]}\n")
    (project / "run.yaml").write_text(run)
    opened = session()
    refs = opened.apply(opened.plan()).launched
    opened.runs.wait(refs, timeout=PATIENCE)
    server.faults.add(
        Fault(pattern="GET */runs/get", effect=Effect.DELAY, seconds=0.1, times=0),
        tenant=server.tenants.of_token(token).key,
    )

    again = session()
    followed = list(again.runs.follow(refs, ranks=(7,)))  # none has that rank, so no lines come

    assert followed[0] is None, "before the second run was asked about"
    assert {item.state for item in followed if isinstance(item, AttemptView)} == {
        AttemptState.SUCCEEDED
    }


@pytest.mark.expensive
@pytest.mark.parametrize("ending", ["platform", "driver", "node_lost"])
def test_a_failure_of_the_users_code_stays_one_whatever_the_platform_calls_it(
    session: Opened, project: Path, server: WorkspaceServer, token: str, ending: str
) -> None:
    (project / "train.py").write_text("def main(n):\n    raise ValueError('no such thing')\n")
    server.faults.add(
        misnamed(ending=ending, message="Workload failed on node 0 with exit code 1"),
        tenant=server.tenants.of_token(token).key,
    )
    opened = session()

    ref = ended(opened)

    run_status = opened.runs.status(ref)
    assert (run_status.state, run_status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "no such thing" in told["first_cause"]["summary"]
    assert "train.py" in told["first_cause"]["traceback"]
    (change,) = session().plan().plan.changes
    assert change.reason is Reason.FAILED_NOT_RETRIED


def test_a_quota_that_is_used_up_is_no_capacity(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    quota = "System error occurred: Workspace has exceeded its GPU quota for GPU_1xA10."
    server.faults.add(
        misnamed(ending="platform", message=quota, at_once=True),
        tenant=server.tenants.of_token(token).key,
    )
    opened = session()

    ref = ended(opened)

    assert opened.runs.status(ref).failure is FailureClass.CAPACITY
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "exceeded its GPU quota" in told["first_cause"]["summary"]


def misnamed(**arguments: Any) -> Fault:
    """The platform calls a failure of the next run something else (evidence: A4)."""
    return Fault(
        pattern="POST */runs/submit", effect=Effect.HOOK, hook="misname", arguments=arguments
    )


def test_an_exception_of_the_users_is_told_apart_and_not_launched_again(
    session: Opened, project: Path
) -> None:
    (project / "train.py").write_text("def main(n):\n    raise ValueError('no such thing')\n")
    opened = session()

    ref = ended(opened)

    run_status = opened.runs.status(ref)
    assert (run_status.state, run_status.failure) == (AttemptState.FAILED, FailureClass.EXCEPTION)
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "no such thing" in told["first_cause"]["summary"]
    assert "train.py" in told["first_cause"]["traceback"]
    (change,) = session().plan().plan.changes
    assert change.reason is Reason.FAILED_NOT_RETRIED


def test_a_node_that_is_lost_is_the_platforms_fault(
    session: Opened, project: Path, server: WorkspaceServer, token: str
) -> None:
    (project / "train.py").write_text("import time\ndef main(n):\n    time.sleep(600)\n")
    key = server.tenants.of_token(token).key
    server.faults.add(
        Fault(pattern="POST */runs/submit", effect=Effect.HOOK, hook="lose_node",
              arguments={"node": 0, "after_lines": 0}), tenant=key,
    )  # fmt: skip
    opened = session()

    ref = ended(opened)

    run_status = opened.runs.status(ref)
    assert run_status.state is AttemptState.FAILED
    assert run_status.failure in (FailureClass.NODE_LOST, FailureClass.CAPACITY)
    (change,) = session().plan().plan.changes
    assert change.reason is Reason.PREVIOUS_FAILED


@pytest.mark.expensive
def test_a_cancelled_run_stays_cancelled(session: Opened, project: Path) -> None:
    (project / "train.py").write_text(
        "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(600)\n"
    )
    opened = session()
    ref = launched(opened)
    next(log for log in opened.runs.logs(ref, ranks=(0,), follow=True) if log is not None)

    opened.runs.cancel(ref)

    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    assert opened.runs.status(ref).state is AttemptState.CANCELLED
    (change,) = session().plan().plan.changes
    assert change.reason is Reason.CANCELLED_BY_USER


@pytest.mark.expensive
def test_what_was_uploaded_is_not_uploaded_again(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    ended(session())
    key = server.tenants.of_token(token).key
    server.recording.clear(key)

    opened = session()
    opened.apply(opened.plan(PlanOptions(rerun=("hello",))))

    asked = server.recording.all(key)
    assert not [path for path in uploads(server, key) if "/objects/" in path]
    assert len(asked) <= 12, [f"{item.method} {item.path}" for item in asked]


def test_an_answer_that_is_lost_after_the_submit_makes_no_second_run(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    key = server.tenants.of_token(token).key
    server.faults.add(Fault(pattern="POST */runs/submit", effect=Effect.LOSE_ANSWER), tenant=key)

    opened = session()
    ref = ended(opened)

    assert opened.runs.status(ref).state is AttemptState.SUCCEEDED
    assert submits(server, token) == [0, 200]
    assert runs_of(server, token) == 1


@pytest.mark.expensive
def test_a_run_that_somebody_deleted_is_lost_and_said_so(
    session: Opened, server: WorkspaceServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgpu_decl.backends.databricks.watching import run_status
    from sgpu_decl.testing.workspace.executing.records import RunRecords

    monkeypatch.setattr(run_status, "SETTLING", 0.0)
    opened = session()
    ref = launched(opened)
    run_id = run_id_of(opened)
    server_runs = RunRecords(server.tenants.of_token(token))
    until(lambda: not server_runs.need(run_id).active)
    server_runs.delete(run_id)

    again = session()

    assert again.runs.status(ref).state is AttemptState.LOST
    (told,) = status_objects(again.runs.describe([ref]))
    assert f"run {run_id} is no longer in" in told["first_cause"]["summary"]
    (change,) = again.plan().plan.changes
    assert change.reason is Reason.PREVIOUS_LOST
    with pytest.raises(NotFound, match="has no log of `hello#1`"):
        list(again.runs.logs(ref, ranks=None, follow=False))


def test_a_run_that_was_shown_and_is_deleted_is_lost_at_once(
    session: Opened, project: Path, server: WorkspaceServer, token: str
) -> None:
    from databricks.sdk import WorkspaceClient

    from sgpu_decl.testing.workspace.executing.records import RunRecords

    (project / "train.py").write_text("import time\ndef main(n):\n    time.sleep(600)\n")
    opened = session()
    ref = launched(opened)
    assert opened.runs.status(ref).state.active
    run_id = run_id_of(opened)
    server_runs = RunRecords(server.tenants.of_token(token))
    WorkspaceClient().jobs.cancel_run(run_id)
    until(lambda: not server_runs.need(run_id).active)
    server_runs.delete(run_id)

    assert session().runs.status(ref).state is AttemptState.LOST


def test_a_run_that_somebody_just_deleted_can_be_cancelled(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    from sgpu_decl.testing.workspace.executing.records import RunRecords

    opened = session()
    ref = launched(opened)
    run_id = run_id_of(opened)
    server_runs = RunRecords(server.tenants.of_token(token))
    until(lambda: not server_runs.need(run_id).active)
    server_runs.delete(run_id)

    again = session()

    again.runs.cancel(ref)


def test_what_this_machine_forgot_is_found_again_in_the_workspace(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    opened = session()
    ref = ended(opened)
    (opened.state_dir / "runs/hello/1/databricks.json").unlink()

    again = session()

    assert again.runs.status(ref).state is AttemptState.SUCCEEDED
    assert len(again.runs.results(ref)) == 2
    assert runs_of(server, token) == 1


def test_an_expired_token_says_what_to_do(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    server.faults.add(
        Fault(pattern="GET */scim/v2/Me", effect=Effect.STATUS, status_code=401, times=0,
              body={"error_code": "UNAUTHENTICATED", "message": "Token is expired"}),
        tenant=server.tenants.of_token(token).key,
    )  # fmt: skip
    opened = session()

    with pytest.raises(BackendError) as caught:
        launched(opened)

    assert caught.value.code == "unauthenticated"
    assert "databricks auth login --host" in str(caught.value.hint)


def _lines(opened: Session, ref: AttemptRef) -> list[Any]:
    return [log for log in opened.runs.logs(ref, ranks=None, follow=False) if log is not None]


@pytest.mark.expensive
def test_destroying_frees_what_no_other_attempt_needs(
    session: Opened, project: Path, tenant: Path
) -> None:
    ended(session())
    (project / "other.yaml").write_text((project / "run.yaml").read_text().replace("hello", "two"))
    other = Session.open(Location(file=project / "other.yaml", project=project))
    ended(other)
    (staging,) = tenant.glob("Workspace/Users/*/.sgpu")
    assert len(list(staging.glob("objects/code/*"))) == 1

    opened = session()
    opened.apply(opened.plan(PlanOptions(destroy=True)))

    assert not (list(staging.glob("runs/*/hello/*/spec.json")))
    assert list(staging.glob("runs/*/hello/*/back/0/node_0/report.json"))
    assert len(list(staging.glob("objects/code/*"))) == 1, "the other run needs it"
    other = Session.open(Location(file=project / "other.yaml", project=project))
    other.apply(other.plan(PlanOptions(destroy=True)))
    assert not list(staging.glob("objects/*/*"))
    assert len(session().runs.results(opened.runs.find("hello")[0])) == 2


def test_gc_leaves_nothing_of_an_earlier_attempt_in_the_workspace(
    session: Opened, tenant: Path
) -> None:
    ended(session())
    (staging,) = tenant.glob("Workspace/Users/*/.sgpu")
    opened = session()
    again = opened.apply(opened.plan(PlanOptions(rerun=("hello",))))
    opened.runs.wait(again.launched)
    opened.record_ended()

    session().gc(keep_last=0, older_than=None, dry_run=False)

    (kept,) = staging.glob("runs/*/hello/*")  # the newest success
    assert kept.name.startswith("2-")


SLEEPS = "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(600)\n"


@pytest.mark.expensive
def test_a_replaced_attempt_has_ended_before_the_new_one_starts(
    session: Opened, project: Path
) -> None:
    code = (project / "train.py").read_text()
    (project / "train.py").write_text(SLEEPS)
    opened = session()
    first = launched(opened)
    next(log for log in opened.runs.logs(first, ranks=(0,), follow=True) if log is not None)
    (project / "train.py").write_text(code)

    again = session()
    (second,) = again.apply(again.plan(PlanOptions(on_active="replace"))).launched
    again.runs.wait([first, second], timeout=PATIENCE)

    old, new = again.runs.status(first), again.runs.status(second)
    assert (old.state, new.state) == (AttemptState.CANCELLED, AttemptState.SUCCEEDED)
    assert old.ended_at is not None
    assert new.started_at is not None
    assert old.ended_at <= new.started_at


def test_nothing_waits_in_line_on_the_platform(session: Opened, project: Path) -> None:
    (project / "train.py").write_text(SLEEPS)
    opened = session()
    ref = launched(opened)
    (project / "train.py").write_text("def main(n):\n    pass\n")

    plan = session().plan(PlanOptions(on_active="queue")).plan

    assert [check.code for check in plan.checks if check.severity == "error"] == ["cannot_queue"]
    opened.runs.cancel(ref)
    opened.runs.wait([ref], timeout=PATIENCE)


@pytest.mark.expensive
def test_a_destroyed_active_run_is_stopped_and_freed_once_it_has_ended(
    session: Opened, project: Path, tenant: Path
) -> None:
    (project / "train.py").write_text(SLEEPS)
    opened = session()
    ref = launched(opened)
    next(log for log in opened.runs.logs(ref, ranks=(0,), follow=True) if log is not None)

    again = session()
    again.apply(again.plan(PlanOptions(destroy=True)))
    again.runs.wait([ref], timeout=PATIENCE)
    again.record_ended()

    (staging,) = tenant.glob("Workspace/Users/*/.sgpu")
    assert not list(staging.glob("objects/*/*"))
    assert not list(staging.glob("runs/*/hello/*/spec.json"))


@pytest.mark.expensive
def test_a_matrix_shares_what_is_uploaded(
    session: Opened, project: Path, server: WorkspaceServer, token: str
) -> None:
    run = (project / "run.yaml").read_text().replace("args: {n: 3}\n", "matrix: {n: [1, 2, 3]}\n")
    (project / "run.yaml").write_text(run)
    opened = session()

    refs = opened.apply(opened.plan()).launched

    opened.runs.wait(refs, timeout=PATIENCE)
    values: list[Any] = [opened.runs.results(ref)[0]["value"] for ref in refs]
    assert sorted(value["n"] for value in values) == [1, 2, 3]
    sent = uploads(server, server.tenants.of_token(token).key)
    shared = [item for item in sent if "/objects/" in item]
    assert len(shared) == 2, "code and agent, once each"
