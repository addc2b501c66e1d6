"""What a workspace may do to an apply and to a run: each time one run, and words that help."""

import json
import random
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.mixins.files import FilesExt

from sgpu_decl.api import PlanOptions
from sgpu_decl.backends.databricks.api import connection as connection_module
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.testing.workspace import Effect, clock
from tests.backends.databricks.bench import SLEEPS, DatabricksBench, Launched
from tests.backends.databricks.conftest import POLICY
from tests.support import PATIENCE

MIB = 1 << 20


def succeeded(run: Launched) -> bool:
    return run.ended().status.state is AttemptState.SUCCEEDED


def refused(bench: DatabricksBench) -> SgpuError:
    """How an apply ended that could not even stage what all launches share."""
    with pytest.raises(BackendError) as caught:
        bench.launch()
    return caught.value


def failed(bench: DatabricksBench) -> SgpuError:
    """How an apply ended whose one launch failed."""
    opened = bench.open()
    ((_, error),) = opened.apply(opened.plan()).failed
    return error


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RETRY_SECONDS", 1)


@pytest.fixture
def in_parts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of 8 MiB, which the SDK sends in parts of one."""
    for name in ("min_stream_size", "default_part_size"):
        monkeypatch.setattr(Config, f"files_ext_multipart_upload_{name}", MIB)
    monkeypatch.setattr(Config, "files_ext_multipart_upload_part_size_options", [MIB])
    (project / "weights.bin").write_bytes(random.Random(1).randbytes(8 * MIB - 1000))


@pytest.mark.expensive
@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("hours", [3, -30])
def test_a_clock_that_is_hours_away_changes_nothing_but_is_said(
    bench: DatabricksBench, hours: int
) -> None:
    volume = bench.stage_in_a_volume()
    before = datetime.now(UTC)

    with clock.ahead(hours * 3600):
        check = bench.checks()["clock_differs"]
        run = bench.launch()
        followed = run.texts(1, follow=True)
        assert succeeded(run)
        status = Launched(bench.open(), run.ref).status
        results = run.results
        run.session.apply(run.session.plan(PlanOptions(destroy=True)))

    assert ("ahead" if hours > 0 else "behind") in check.summary
    assert "timedatectl" in str(check.hint)
    assert followed == ["hello from 1", "and more"]
    assert len(results) == 2
    assert status.started_at is not None
    assert status.ended_at is not None
    assert abs((status.started_at - before).total_seconds()) < 3600
    assert status.started_at <= status.ended_at
    assert not list(volume.glob("here/objects/*/*"))


@pytest.mark.expensive
@pytest.mark.usefixtures("in_parts")
def test_an_upload_that_breaks_at_part_seven(bench: DatabricksBench) -> None:
    volume = bench.stage_in_a_volume()
    bench.fault("PUT /__storage/*/7", status_code=400)

    assert "objects/code" in refused(bench).message

    assert not list(volume.glob("here/objects/code/*")), "no half object"
    assert bench.runs == 0
    bench.fault("PUT /__storage/*/7", Effect.CUT)
    assert succeeded(bench.launch())
    assert len(list(volume.glob("here/objects/code/*"))) == 1
    assert bench.runs == 1


@pytest.mark.expensive
@pytest.mark.usefixtures("in_parts")
def test_links_to_the_storage_that_expire_before_they_are_used(bench: DatabricksBench) -> None:
    """An SDK that knows several endpoints for one upload takes the workspace itself then."""
    bench.stage_in_a_volume()
    opened = bench.open()
    plan = opened.plan()
    if hasattr(FilesExt, "_upload_endpoints"):
        with clock.ahead(7200):
            (ref,) = opened.apply(plan).launched
        assert succeeded(Launched(opened, ref))
        return
    with clock.ahead(7200), pytest.raises(BackendError, match="URL expired") as caught:
        opened.apply(plan)
    assert "clock" in str(caught.value.hint)


@pytest.mark.expensive
def test_staging_that_takes_nothing_says_where_else(bench: DatabricksBench) -> None:
    volume = bench.stage_in_a_volume()
    workspace = bench.tenant.tree("Workspace")
    for pattern, status, name, code, hint in (
        ("PUT */fs/files/*", 507, "INSUFFICIENT_STORAGE", "no_room", "sgpu gc"),
        ("PUT */objects/code/*", 507, "INSUFFICIENT_STORAGE", "no_room", "sgpu gc"),
        ("PUT */fs/directories/*", 403, "PERMISSION_DENIED", "permission_denied", "you may"),
        ("PUT */fs/directories/*", 404, "NOT_FOUND", "remote_missing", "make the volume"),
    ):
        bench.refuse(pattern, status, name, "of the test")
        error = refused(bench)
        assert (error.code, "/Volumes/main/ml/sgpu/here/" in error.message) == (code, True)
        assert hint in str(error.hint)
        assert "backend.staging" in str(error.hint)
        assert _files(volume) == [], "nothing that keeps gc from making room"
    bench.refuse("POST */workspace/import", 507, "INSUFFICIENT_STORAGE", "of the test", after=2)
    error = failed(bench)
    left = [*_files(volume), *_files(workspace, "commands")]
    assert (error.code, left) == ("no_room", [])
    assert bench.runs == 0
    assert succeeded(bench.launch()), "once there is room"
    assert _files(workspace, "commands")
    assert bench.runs == 1


def _files(tree: Path, folder: str = "runs") -> list[Path]:
    """What launches have there of their own."""
    return [path for path in tree.glob(f"**/{folder}/**/*") if path.is_file()]


@pytest.mark.expensive
@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("fault", [{"effect": Effect.LOSE_ANSWER}, {"keep": True}])
def test_a_storm_that_hides_whether_a_run_was_started_loses_none(
    bench: DatabricksBench, fault: dict[str, Any]
) -> None:
    bench.fault("POST */runs/submit", times=0, **fault)

    error = failed(bench)

    assert error.code == "outcome_unknown"
    assert "apply again" in str(error.hint)
    assert bench.runs == 1
    opened = bench.open()
    assert not opened.apply(opened.plan()).launched, "nor is a second one, while it goes on"
    bench.no_faults()
    again = bench.open()
    again.apply(again.plan())
    (ref,) = again.runs.find("hello")
    assert (ref.number, succeeded(Launched(again, ref)), bench.runs) == (1, True, 1)


@pytest.mark.expensive
@pytest.mark.usefixtures("few_retries")
def test_a_storm_that_refuses_everything_starts_nothing(bench: DatabricksBench) -> None:
    bench.fault("POST */runs/submit", times=0, status_code=429)

    error = failed(bench)

    assert (error.code, error.retryable, bench.runs) == ("throttled", True, 0)
    bench.no_faults()
    bench.declare("n: 3", "n: 4")
    assert succeeded(bench.launch())
    assert bench.runs == 1


def test_a_run_that_gets_no_gpus_is_taken_out_of_the_line(bench: DatabricksBench) -> None:
    bench.declare("gpus: 2\ntype: A10", "gpus: 1\ntype: H100")

    run = bench.run()

    status = run.status
    assert (status.state, status.failure, status.started_at) == (
        AttemptState.FAILED, FailureClass.CAPACITY, None,
    )  # fmt: skip
    assert "apply again later, or use another `type`" in run.cause["summary"]
    change = bench.change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_FAILED)


@pytest.mark.expensive
def test_credentials_that_expire_while_a_run_is_followed_end_the_viewer_alone(
    bench: DatabricksBench,
) -> None:
    bench.code(SLEEPS)
    with subprocess.Popen(
        [sys.executable, "-m", "sgpu_decl", "apply", "-y", "run.yaml"], cwd=bench.project,
        text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as viewer:  # fmt: skip
        assert viewer.stdout is not None
        assert "up\n" in viewer.stdout
        bench.fault("* /api/*", times=0, status_code=401)
        said = viewer.communicate(timeout=PATIENCE)[1]

    assert viewer.returncode == 1
    assert "the run may go on, but its backend does not answer" in said
    assert "databricks auth login --host" in said
    bench.no_faults()
    opened = bench.open()
    run = Launched(opened, *opened.runs.find("hello"))
    assert run.status.state is AttemptState.RUNNING
    # Somebody cancels it in the workspace: that is what the next look finds.
    client = WorkspaceClient()
    (found,) = client.jobs.list_runs(active_only=True)
    client.jobs.cancel_run(found.run_id or 0)
    assert run.ended().status.state is AttemptState.CANCELLED
    assert bench.change().reason is Reason.CANCELLED_BY_USER


def test_results_that_the_staging_folder_does_not_take_are_no_success(
    bench: DatabricksBench,
) -> None:
    variables = f"variables: {{RUNS: '{bench.tenant.folder}/Workspace/Users'}}"
    bench.declare("gpus: 2", "gpus: 1")
    bench.declare("{base: gpu-6}", f"{{base: gpu-6, {variables}}}")
    bench.code(
        "import glob, os, shutil\n"
        "def main(n):\n"
        "    (back,) = glob.glob(os.environ['RUNS'] + '/*/.sgpu/runs/*/hello/*/back')\n"
        "    shutil.rmtree(back + '/0')\n"
        "    open(back + '/0', 'w').close()\n"
    )

    run = bench.run()

    assert run.status.state is not AttemptState.SUCCEEDED
    assert run.cause["class"] == "exit_code"
    assert "whether there is room" in run.cause["summary"]
    assert any("cannot be uploaded" in line for line in run.texts())


@pytest.mark.expensive
def test_two_nodes_of_eight_with_all_that_the_platform_is_told(bench: DatabricksBench) -> None:
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
    (bench.project / "run.yaml").write_text(run)
    assert str(bench.checks()["multi_node_preview"].severity) == "info"
    error = failed(bench)
    assert "nobody" in error.message
    assert [finding.place and finding.place.line for finding in error.diagnostics] == [9]
    assert bench.runs == 0
    bench.declare("nobody", "users")

    launched = bench.launch()

    assert succeeded(launched)
    ranks = list(range(16))
    assert [result["value"]["rank"] for result in launched.results] == ranks
    assert [item["node_rank"] for item in launched.told["ranks"]] == [0] * 8 + [1] * 8
    said = [line.rank for line in launched.lines() if line.text.startswith("hello")]
    assert sorted(item for item in said if item is not None) == ranks
    (asked,) = bench.records.all()
    assert asked.settings["budget_policy_id"] == POLICY
    client = WorkspaceClient()
    found = client.permissions.get("jobs", str(asked.job_id)).access_control_list or []
    levels = {item.group_name: item.all_permissions for item in found}
    assert "CAN_MANAGE_RUN" in str(levels["users"])
    request = urllib.request.Request(
        f"{bench.server.url}/__testserver/mails",
        headers={"Authorization": f"Bearer {bench.token}"},
    )
    with urllib.request.urlopen(request) as answer:
        mails = json.load(answer)["mails"]
    assert [(mail["to"], mail["kind"]) for mail in mails] == [("a@example.com", "on_success")]
