"""What a workspace may do to an apply and to a run: each time one run, and words that help."""

import json
import random
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.mixins.files import FilesExt

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.backends.databricks.api import connection as connection_module
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer, clock
from sgpu_decl.testing.workspace.executing.records import RunRecords
from sgpu_decl.views.status_json import status_objects
from tests.backends.databricks.conftest import POLICY
from tests.backends.databricks.test_staging import stage_in_a_volume
from tests.support import PATIENCE

Opened = Callable[[], Session]
MIB = 1 << 20


def launched(opened: Session) -> AttemptRef:
    (ref,) = opened.apply(opened.plan()).launched
    return ref


def succeeded(opened: Session, ref: AttemptRef) -> bool:
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    return opened.runs.status(ref).state is AttemptState.SUCCEEDED


def refused(opened: Session) -> SgpuError:
    """How an apply ended that could not even stage what all launches share."""
    with pytest.raises(BackendError) as caught:
        launched(opened)
    return caught.value


@pytest.fixture
def runs(server: WorkspaceServer, token: str) -> Callable[[], int]:
    """How many runs there are in the workspace."""
    return lambda: len(RunRecords(server.tenants.of_token(token)).all())


@pytest.fixture
def befall(server: WorkspaceServer, token: str) -> Callable[..., None]:
    """Let a fault befall this user's requests."""
    key = server.tenants.of_token(token).key

    def add(pattern: str, effect: Effect = Effect.STATUS, **more: object) -> None:
        server.faults.add(Fault(pattern=pattern, effect=effect, **more), tenant=key)  # type: ignore[arg-type]  # fields of a fault

    return add


@pytest.fixture
def in_parts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of 8 MiB, which the SDK sends in parts of one."""
    for name in ("min_stream_size", "default_part_size"):
        monkeypatch.setattr(Config, f"files_ext_multipart_upload_{name}", MIB)
    monkeypatch.setattr(Config, "files_ext_multipart_upload_part_size_options", [MIB])
    (project / "weights.bin").write_bytes(random.Random(1).randbytes(8 * MIB - 1000))


@pytest.mark.expensive
@pytest.mark.parametrize("hours", [3, -30])
def test_a_clock_that_is_hours_away_changes_nothing_but_is_said(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    in_parts: None,
    hours: int,
) -> None:
    volume = stage_in_a_volume(server, project, token)
    before = datetime.now(UTC)

    with clock.ahead(hours * 3600):
        opened = session()
        (check,) = [item for item in opened.plan().plan.checks if item.code == "clock_differs"]
        ref = launched(opened)
        followed = [
            log for log in opened.runs.logs(ref, ranks=(1,), follow=True) if log is not None
        ]
        assert succeeded(opened, ref)
        status = session().runs.status(ref)
        results = opened.runs.results(ref)
        opened.apply(opened.plan(PlanOptions(destroy=True)))

    assert ("ahead" if hours > 0 else "behind") in check.summary
    assert "timedatectl" in str(check.hint)
    assert [item.text for item in followed] == ["hello from 1", "and more"]
    assert len(results) == 2
    assert status.started_at is not None
    assert status.ended_at is not None
    assert abs((status.started_at - before).total_seconds()) < 3600
    assert status.started_at <= status.ended_at
    assert not list(volume.glob("here/objects/*/*"))


@pytest.mark.expensive
def test_an_upload_that_breaks_at_part_seven(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    in_parts: None,
    befall: Callable[..., None],
    runs: Callable[[], int],
) -> None:
    volume = stage_in_a_volume(server, project, token)
    befall("PUT /__storage/*/7", status_code=400)

    error = refused(session())

    assert "objects/code" in error.message
    assert not list(volume.glob("here/objects/code/*")), "no half object"
    assert runs() == 0
    befall("PUT /__storage/*/7", Effect.CUT)
    opened = session()
    assert succeeded(opened, launched(opened))
    assert len(list(volume.glob("here/objects/code/*"))) == 1
    assert runs() == 1


@pytest.mark.expensive
def test_links_to_the_storage_that_expire_before_they_are_used(
    session: Opened, project: Path, server: WorkspaceServer, token: str, in_parts: None
) -> None:
    """An SDK that knows several endpoints for one upload takes the workspace itself then."""
    stage_in_a_volume(server, project, token)
    opened = session()
    plan = opened.plan()
    if hasattr(FilesExt, "_upload_endpoints"):
        with clock.ahead(7200):
            (ref,) = opened.apply(plan).launched
        assert succeeded(opened, ref)
        return
    with clock.ahead(7200), pytest.raises(BackendError, match="URL expired") as caught:
        opened.apply(plan)
    assert "clock" in str(caught.value.hint)


@pytest.mark.expensive
def test_staging_that_takes_nothing_says_where_else(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    befall: Callable[..., None],
    runs: Callable[[], int],
) -> None:
    volume = stage_in_a_volume(server, project, token)
    told = [
        ("PUT */fs/files/*", 507, "INSUFFICIENT_STORAGE", "no_room", "sgpu gc"),
        ("PUT */objects/code/*", 507, "INSUFFICIENT_STORAGE", "no_room", "sgpu gc"),
        ("PUT */fs/directories/*", 403, "PERMISSION_DENIED", "permission_denied", "you may"),
        ("PUT */fs/directories/*", 404, "NOT_FOUND", "remote_missing", "make the volume"),
    ]
    for pattern, status, name, code, hint in told:
        befall(
            pattern, status_code=status, body={"error_code": name, "message": "of the test"}
        )  # fmt: skip
        error = refused(session())
        assert (error.code, "/Volumes/main/ml/sgpu/here/" in error.message) == (code, True)
        assert hint in str(error.hint)
        assert "backend.staging" in str(error.hint)
        assert _files(volume) == [], "nothing that keeps gc from making room"
    full = {"error_code": "INSUFFICIENT_STORAGE", "message": "of the test"}
    befall("POST */workspace/import", status_code=507, body=full, after=2)
    opened = session()
    ((_, error),) = opened.apply(opened.plan()).failed
    workspace = server.tenants.of_token(token).tree("Workspace")
    left = [*_files(volume), *_files(workspace, "commands")]
    assert (error.code, left) == ("no_room", [])
    assert runs() == 0
    opened = session()
    assert succeeded(opened, launched(opened)), "once there is room"
    assert _files(workspace, "commands")
    assert runs() == 1


def _files(tree: Path, folder: str = "runs") -> list[Path]:
    """What launches have there of their own."""
    return [path for path in tree.glob(f"**/{folder}/**/*") if path.is_file()]


@pytest.mark.expensive
@pytest.mark.parametrize("fault", [{"effect": Effect.LOSE_ANSWER}, {"keep": True}])
def test_a_storm_that_hides_whether_a_run_was_started_loses_none(
    session: Opened,
    server: WorkspaceServer,
    token: str,
    befall: Callable[..., None],
    runs: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, object],
) -> None:
    monkeypatch.setattr(connection_module, "RETRIES", 1)
    befall("POST */runs/submit", times=0, **fault)
    opened = session()

    ((_, error),) = opened.apply(opened.plan()).failed

    assert error.code == "outcome_unknown"
    assert "apply again" in str(error.hint)
    assert runs() == 1
    opened = session()
    assert not opened.apply(opened.plan()).launched, "nor is a second one, while it goes on"
    server.faults.clear(server.tenants.of_token(token).key)
    again = session()
    again.apply(again.plan())
    (ref,) = again.runs.find("hello")
    assert (ref.number, succeeded(again, ref), runs()) == (1, True, 1)


@pytest.mark.expensive
def test_a_storm_that_refuses_everything_starts_nothing(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    befall: Callable[..., None],
    runs: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "RETRIES", 1)
    befall("POST */runs/submit", times=0, status_code=429)
    opened = session()

    ((_, error),) = opened.apply(opened.plan()).failed

    assert (error.code, error.retryable, runs()) == ("throttled", True, 0)
    server.faults.clear(server.tenants.of_token(token).key)
    run = (project / "run.yaml").read_text()
    (project / "run.yaml").write_text(run.replace("n: 3", "n: 4"))
    again = session()
    assert succeeded(again, launched(again))
    assert runs() == 1


def test_a_run_that_gets_no_gpus_is_taken_out_of_the_line(session: Opened, project: Path) -> None:
    run = (project / "run.yaml").read_text()
    (project / "run.yaml").write_text(run.replace("A10", "H100").replace("gpus: 2", "gpus: 1"))
    opened = session()
    ref = launched(opened)

    assert not succeeded(opened, ref)

    status = opened.runs.status(ref)
    assert (status.failure, status.started_at) == (FailureClass.CAPACITY, None)
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "apply again later, or use another `type`" in told["first_cause"]["summary"]
    (change,) = session().plan().plan.changes
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_FAILED)


@pytest.mark.expensive
def test_credentials_that_expire_while_a_run_is_followed_end_the_viewer_alone(
    session: Opened, project: Path, befall: Callable[..., None], server: WorkspaceServer, token: str
) -> None:
    (project / "train.py").write_text(
        "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "sgpu_decl", "apply", "-y", "run.yaml"], cwd=project, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as viewer:  # fmt: skip
        assert viewer.stdout is not None
        assert "up\n" in viewer.stdout
        befall("* /api/*", times=0, status_code=401)
        said = viewer.communicate(timeout=PATIENCE)[1]

    assert viewer.returncode == 1
    assert "the run may go on, but its backend does not answer" in said
    assert "databricks auth login --host" in said
    server.faults.clear(server.tenants.of_token(token).key)
    opened = session()
    (ref,) = opened.runs.find("hello")
    assert opened.runs.status(ref).state is AttemptState.RUNNING
    # Somebody cancels it in the workspace: that is what the next look finds.
    client = WorkspaceClient()
    (run,) = client.jobs.list_runs(active_only=True)
    client.jobs.cancel_run(run.run_id or 0)
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    assert opened.runs.status(ref).state is AttemptState.CANCELLED
    (change,) = session().plan().plan.changes
    assert change.reason is Reason.CANCELLED_BY_USER


def test_results_that_the_staging_folder_does_not_take_are_no_success(
    session: Opened, project: Path, tenant: Path
) -> None:
    run = (project / "run.yaml").read_text().replace("gpus: 2", "gpus: 1")
    variables = f"variables: {{RUNS: '{tenant}/Workspace/Users'}}"
    (project / "run.yaml").write_text(run.replace("{base: gpu-6}", f"{{base: gpu-6, {variables}}}"))
    (project / "train.py").write_text(
        "import glob, os, shutil\n"
        "def main(n):\n"
        "    (back,) = glob.glob(os.environ['RUNS'] + '/*/.sgpu/runs/*/hello/*/back')\n"
        "    shutil.rmtree(back + '/0')\n"
        "    open(back + '/0', 'w').close()\n"
    )
    opened = session()
    ref = launched(opened)

    assert not succeeded(opened, ref)

    (told,) = status_objects(opened.runs.describe([ref]))
    assert told["first_cause"]["class"] == "exit_code"
    assert "whether there is room" in told["first_cause"]["summary"]
    lines = [log.text for log in opened.runs.logs(ref, ranks=None, follow=False) if log is not None]
    assert any("cannot be uploaded" in line for line in lines)


@pytest.mark.expensive
def test_two_nodes_of_eight_with_all_that_the_platform_is_told(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    runs: Callable[[], int],
) -> None:
    run = """\
name: hello
gpus: 16
type: H100
entrypoint: train.py:main
args: {n: 3}
grace: 500ms
image: main.ml.trainer:3
budget: team
permissions: [{group: nobody, level: run}]
on_finish: {success: [a@example.com], failure: [b@example.com]}
backend: databricks
"""
    (project / "run.yaml").write_text(run)
    opened = session()
    plan = opened.plan()
    assert "multi_node_preview" in {
        check.code for check in plan.plan.checks if str(check.severity) == "info"
    }
    ((_, error),) = opened.apply(plan).failed
    assert "nobody" in error.message
    assert [finding.place and finding.place.line for finding in error.diagnostics] == [9]
    assert runs() == 0
    (project / "run.yaml").write_text(run.replace("nobody", "users"))
    opened = session()

    ref = launched(opened)

    assert succeeded(opened, ref)
    ranks = list(range(16))
    assert [result["value"]["rank"] for result in opened.runs.results(ref)] == ranks
    (told,) = status_objects(opened.runs.describe([ref]))
    assert [item["node_rank"] for item in told["ranks"]] == [0] * 8 + [1] * 8
    lines = [log for log in opened.runs.logs(ref, ranks=None, follow=False) if log is not None]
    said = [line.rank for line in lines if line.text.startswith("hello")]
    assert sorted(item for item in said if item is not None) == ranks
    (asked,) = RunRecords(server.tenants.of_token(token)).all()
    assert asked.settings["budget_policy_id"] == POLICY
    client = WorkspaceClient()
    found = client.permissions.get("jobs", str(asked.job_id)).access_control_list or []
    levels = {item.group_name: item.all_permissions for item in found}
    assert "CAN_MANAGE_RUN" in str(levels["users"])
    request = urllib.request.Request(
        f"{server.url}/__testserver/mails", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request) as answer:
        mails = json.load(answer)["mails"]
    assert [(mail["to"], mail["kind"]) for mail in mails] == [("a@example.com", "on_success")]
