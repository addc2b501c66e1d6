"""Jobs that launch a run of the project: staged once, launched by the workspace again and again."""

import json
import shutil
from pathlib import Path
from typing import Any
from venv import create

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.api import PlanOptions
from sgpu_decl.applying.apply_result import Applied
from sgpu_decl.errors import SgpuError, Usage
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.testing.workspace import WorkspaceServer
from tests.backends.databricks.bench import DatabricksBench
from tests.sampling import sampled
from tests.webhook_server import WebhookServer

PROJECT = """\
project: {name: shop}
runs:
  train:
    gpus: 2
    type: A10
    entrypoint: train.py:main
    args: {n: 3}
    grace: 500ms
    timeout: 1h
    env: {base: gpu-6}
    retry: {max: 1, on: [infra], backoff: 0s}
    permissions: [{level: view, group: users}]
    backend: databricks
jobs:
  nightly:
    run: train
    schedule: 0 0 2 * * ?
"""
CODE = """\
import os
def main(n):
    return {"rank": int(os.environ["RANK"]), "n": n}
"""


class Shop(DatabricksBench):
    """A project whose job launches its run."""

    def apply(self, **asked: Any) -> Applied:
        session = self.open()
        done = session.apply(session.plan(PlanOptions(**asked)))
        assert done.failed == ()
        return done

    def write(self, name: str, old: str, new: str) -> None:
        text = (self.project / name).read_text()
        assert old in text
        (self.project / name).write_text(text.replace(old, new))

    def api(self, method: str, path: str, **body: Any) -> Any:
        client = WorkspaceClient(host=self.server.url, token=self.token)
        given: dict[str, Any] = {"query": body} if method == "GET" else {"body": body}
        return client.api_client.do(method, f"/api/2.2/jobs/{path}", **given)

    def job(self) -> tuple[int, dict[str, Any]]:
        (found,) = self.api("GET", "list", expand_tasks="true")["jobs"]
        return found["job_id"], found["settings"]

    def start(self) -> str:
        """As the schedule would, to its end; returns how it ended."""
        run_id = self.api("POST", "run-now", job_id=self.job()[0])["run_id"]
        return str(self.ended(run_id)["state"]["result_state"])

    def ended(self, run_id: int) -> Any:
        while True:
            run = self.api("GET", "runs/get", run_id=run_id)
            if run["state"]["life_cycle_state"] in ("TERMINATED", "INTERNAL_ERROR"):
                return run

    def folders(self) -> list[Path]:
        """Where the job is launched from, and was."""
        return sorted(self.tenant.folder.glob("Workspace/Users/*/.sgpu/runs/*/job.nightly/*"))

    def staged(self, kind: str) -> list[str]:
        found = self.tenant.folder.glob(f"Workspace/Users/*/.sgpu/objects/{kind}/*")
        return sorted(path.name for path in found)

    def returned(self, attempt: int) -> list[Any]:
        (folder,) = self.folders()
        found = sorted(folder.glob(f"back/{attempt}/node_*/ranks/*/output.json"))
        return [json.loads(item.read_bytes()) for item in found]


@pytest.fixture
def shop(project: Path, server: WorkspaceServer, token: str) -> Shop:
    (project / "run.yaml").unlink()
    (project / "sgpu.yml").write_text(PROJECT)
    (project / "train.py").write_text(CODE)
    return Shop(project, server, token, "sgpu.yml")


def test_a_job_launches_its_run_again_and_again(shop: Shop) -> None:
    planned = shop.change()
    assert (str(planned.address), planned.action) == ("job.nightly", Action.CREATE)
    assert planned.code is not None
    shown = {field.path: field.after for field in planned.fields}
    assert (shown["run.args.n"], shown["run.gpus"]) == (3, 2)
    assert not [path for path in shown if path.startswith(("tasks", "staged", "environments"))]

    shop.apply()

    assert shop.change().action is Action.NO_OP
    (task,) = shop.job()[1]["tasks"]
    (deployment,) = task["ai_runtime_task"]["deployments"]
    assert deployment["compute"] == {"accelerator_type": "GPU_1xA10", "accelerator_count": 2}
    assert (task["max_retries"], task["timeout_seconds"]) == (1, 3600 + 24 * 3600 + 600)
    for attempt in range(2):
        assert shop.start() == "SUCCESS"
        assert shop.returned(attempt) == [{"rank": 0, "n": 3}, {"rank": 1, "n": 3}]


def test_what_changed_of_the_run_is_told_at_its_line_and_launched_next(shop: Shop) -> None:
    shop.apply()
    ((old,), archives) = shop.folders(), shop.staged("code")
    shop.write("sgpu.yml", "n: 3", "n: 4")

    planned = shop.change()

    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.CONFIG_CHANGED)
    (field,) = planned.fields
    assert (field.path, field.before, field.after) == ("run.args.n", 3, 4)
    assert (field.origin.line, field.origin.column) == (7, 15)
    shop.write("train.py", '"n": n', '"n": n, "new": True')
    shop.apply()
    (new,) = shop.folders()
    assert new != old, "the old version is given back"
    assert len(shop.staged("code")) == 1
    assert shop.staged("code") != archives
    assert shop.start() == "SUCCESS"
    assert shop.returned(0)[0] == {"rank": 0, "n": 4, "new": True}


def test_a_job_is_left_as_it_is_where_nothing_changed_that_counts(shop: Shop) -> None:
    (shop.project / "NOTES.md").write_text("one\n")
    shop.apply()
    (shop.project / "NOTES.md").write_text("two\n")
    assert shop.change().action is Action.NO_OP
    shop.write("sgpu.yml", "0 0 2", "0 0 3")
    assert [field.path for field in shop.change().fields] == ["schedule.quartz_cron_expression"]
    shop.write("train.py", '"n": n', '"n": -n')
    assert shop.change().code.changed == ("train.py",)


def test_changed_code_alone_is_the_reason_and_is_sent(shop: Shop) -> None:
    shop.apply()
    (old,) = shop.folders()
    shop.write("train.py", '"n": n', '"n": -n')

    planned = shop.change()

    assert (planned.reason, planned.fields) == (Reason.CODE_CHANGED, ())
    assert planned.code is not None
    assert planned.code.changed == ("train.py",)
    shop.apply()
    assert shop.folders() != [old]
    assert shop.change().action is Action.NO_OP


@pytest.mark.expensive
def test_the_run_of_a_job_is_launched_by_apply_only_if_it_is_asked_for(shop: Shop) -> None:
    plan = shop.plan()
    assert [str(change.address) for change in plan.changes] == ["job.nightly"]
    (check,) = [item for item in plan.checks if item.code == "launched_by_job"]
    assert str(check.address) == "run.train"
    assert plan.complete
    with pytest.raises(Usage, match="cannot start a job"):
        shop.plan(rerun=("job.nightly",))

    done = shop.apply(rerun=("run.train",))

    assert [str(item) for item in done.launched] == ["train#1"]
    assert [change.action for change in shop.plan().changes] == [Action.NO_OP], "and not again"
    assert shop.open().runs.wait([done.launched[0]], timeout=60)


def test_a_job_does_not_know_which_output_its_run_reads(shop: Shop) -> None:
    first = "  first: {gpus: 1, type: A10, entrypoint: train.py:main, args: {n: 1}, "
    first += "env: {base: gpu-6}, backend: databricks}\n"
    shop.write("sgpu.yml", "jobs:\n", f"{first}jobs:\n")
    shop.write("sgpu.yml", "args: {n: 3}", "args: {n: '${run.first.output}'}\n    after: [first]")
    (check,) = [item for item in shop.plan().checks if item.code == "run_refused"]
    assert "a job does not know which output `${run.first.output}` is" in check.summary
    assert check.place is not None


def test_of_a_run_that_several_jobs_launch_all_are_named(shop: Shop) -> None:
    with (shop.project / "sgpu.yml").open("a") as file:
        file.write("  hourly: {run: train, trigger: {every: 1h}}\n")
    (check,) = [item for item in shop.plan().checks if item.code == "launched_by_job"]
    assert check.summary == "`job.nightly` and `job.hourly` launch it, `apply` does not"


def test_an_edit_of_the_task_is_drift_and_is_taken_back(shop: Shop) -> None:
    shop.apply()
    job_id, settings = shop.job()
    (task,) = settings["tasks"]
    task["ai_runtime_task"]["deployments"][0]["compute"]["accelerator_count"] = 8
    shop.api("POST", "update", job_id=job_id, new_settings={"tasks": [task]})

    planned = shop.change()

    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.LIVE_DRIFTED)
    (field,) = planned.fields
    assert field.path.endswith("deployments.0.compute.accelerator_count")
    assert (field.before, field.after, field.drifted) == (8, 2, True)
    assert field.origin is not None
    assert field.origin.line == 16, "where the job names its run"
    shop.apply()
    assert shop.change().action is Action.NO_OP


@pytest.mark.expensive
def test_a_mistake_of_the_user_is_made_once_in_each_launch(shop: Shop) -> None:
    # One node: of several, the first that ends has the platform stop the others, and node 0 may be
    # killed before it has brought back the verdict that is looked for here.
    shop.write("sgpu.yml", "gpus: 2", "gpus: 1")
    (shop.project / "train.py").write_text("def main(n):\n    raise ValueError(n)\n")
    shop.apply()
    for launch in range(2):
        assert shop.start() == "FAILED"
        (folder,) = shop.folders()
        ran = [path.parents[1].name for path in folder.glob("back/*/node_0/ranks")]
        assert sorted(ran) == ["0", "2"][: launch + 1], "the second attempt repeats its verdict"


def test_while_it_is_launched_nothing_is_taken_from_under_it(shop: Shop) -> None:
    (shop.project / "train.py").write_text(
        "import threading\ndef main(n):\n    threading.Event().wait()\n"
    )
    shop.apply()
    (old,) = shop.folders()
    run_id = shop.api("POST", "run-now", job_id=shop.job()[0])["run_id"]
    shop.write("sgpu.yml", "n: 3", "n: 4")
    shop.apply()
    assert old in shop.folders()
    (shop.project / "sgpu.yml").write_text("project: {name: shop}\n")
    shop.apply()
    assert len(shop.folders()) == 2

    shop.api("POST", "runs/cancel", run_id=run_id)
    shop.ended(run_id)
    shop.open().gc(keep_last=0, older_than=None, dry_run=False)

    assert shop.folders() == []
    assert shop.staged("code") == shop.staged("agent") == []


@pytest.mark.expensive
def test_a_job_that_goes_takes_its_folder_along(shop: Shop) -> None:
    shop.apply()
    shop.apply(destroy=True)
    assert shop.folders() == []
    assert shop.staged("code") == []
    shop.apply()
    assert shop.start() == "SUCCESS"


def test_a_saved_plan_launches_the_code_that_it_was_made_of(shop: Shop) -> None:
    from sgpu_decl.planning.plan_file import load_plan

    saved = shop.project.parent / "saved.plan"
    session = shop.open()
    session.save(session.plan(), saved)
    shop.write("train.py", '"n": n', '"n": 0')
    session = shop.open()
    session.apply(load_plan(saved))
    assert shop.change().reason is Reason.CODE_CHANGED

    session = shop.open()
    plan = session.plan()
    shop.write("train.py", '"n": 0', '"n": 1')
    with pytest.raises(SgpuError, match="changed while it was staged"):
        shop.open().apply(plan)


def test_a_moved_job_takes_its_run_along(shop: Shop) -> None:
    shop.apply()
    shop.open().state.move("job.nightly", "job.daily")
    shop.write("sgpu.yml", "nightly:", "daily:")
    planned = shop.change()
    assert planned.action is Action.UPDATE
    assert not [field.path for field in planned.fields if field.drifted]
    shop.apply()
    assert shop.change().action is Action.NO_OP


@pytest.mark.expensive
def test_a_job_with_a_run_is_adopted(shop: Shop) -> None:
    task = {"task_key": "x", "notebook_task": {"notebook_path": "/Workspace/old"}}
    made = shop.api("POST", "create", name="by hand", tasks=[task])["job_id"]
    shop.open().jobs.adopt("nightly", str(made))
    planned = shop.change()
    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.CONFIG_CHANGED)
    shop.apply()
    assert shop.job()[0] == made
    assert shop.start() == "SUCCESS"


@pytest.mark.parametrize(
    "moment", sampled(["stage,before", "stage,after", "create,before", "create,after"], quick=1)
)
def test_killed_while_a_job_is_made_it_is_made_once_and_whole(shop: Shop, moment: str) -> None:
    owner = "sgpu_decl.backends.databricks.jobs.workspace_jobs,WorkspaceJobs"
    shop.killed(f"{owner},{moment},1", "-y", "sgpu.yml")
    shop.apply()
    assert shop.change().action is Action.NO_OP
    assert len(shop.folders()) == 1
    assert shop.job()[1]["tasks"][0]["task_key"] == "nightly"


@pytest.mark.parametrize("name", ["", "_air.py"])
def test_what_somebody_deleted_of_it_is_drift_and_is_staged_again(shop: Shop, name: str) -> None:
    shop.apply()
    (folder,) = shop.folders()
    shutil.rmtree(folder) if name == "" else (folder / name).unlink()

    planned = shop.change()

    assert (planned.action, planned.reason) == (Action.UPDATE, Reason.LIVE_DRIFTED)
    assert [(field.path, field.drifted) for field in planned.fields] == [("staged", True)]
    shop.apply()
    assert shop.folders() == [folder]
    assert shop.change().action is Action.NO_OP


@pytest.mark.expensive
@pytest.mark.parametrize("kind", ["code", "agent"])
def test_what_launches_share_is_staged_again_too(shop: Shop, kind: str) -> None:
    shop.apply()
    (deleted,) = shop.tenant.folder.glob(f"Workspace/Users/*/.sgpu/objects/{kind}/*")
    deleted.unlink()

    assert [(field.path, field.drifted) for field in shop.change().fields] == [("staged", True)]
    shop.apply()
    assert shop.start() == "SUCCESS"
    assert shop.change().action is Action.NO_OP


@pytest.mark.expensive
def test_a_job_that_was_forgotten_keeps_what_it_launches(shop: Shop) -> None:
    shop.apply()
    session = shop.open()
    session.state.remove("job.nightly")
    session.gc(keep_last=0, older_than=None, dry_run=False)
    assert shop.start() == "SUCCESS"

    session.jobs.adopt("nightly", str(shop.job()[0]))
    assert shop.change().action is Action.NO_OP


@pytest.mark.expensive
def test_a_notebook_instead_of_the_run_is_told_and_the_other_way_round(shop: Shop) -> None:
    def told() -> dict[str, tuple[object, object]]:
        (change,) = (item for item in shop.plan().changes if str(item.address) == "job.nightly")
        blocks = ("tasks", "environments")
        told = (field for field in change.fields if field.path.partition(".")[0] in blocks)
        return {item.path: (item.before, item.after) for item in told}

    path = "tasks.nightly.notebook_task.notebook_path"
    shop.apply()
    notebook = "notebook: {path: /Workspace/report, base: gpu-4, retries: 2}"
    shop.write("sgpu.yml", "run: train", notebook)
    assert told() == {
        path: (None, "/Workspace/report"),
        "tasks.nightly.max_retries": (1, 2),
        "environments.default.spec.environment_version": ("6", "4"),
    }
    shop.apply(select=("job.nightly",))
    shop.write("sgpu.yml", notebook, "run: train")
    assert told() == {path: ("/Workspace/report", None)}
    shop.apply(select=("job.nightly",))
    assert shop.start() == "SUCCESS"


@pytest.mark.expensive
def test_the_environment_of_the_run_goes_along_and_its_packages_are_told(
    shop: Shop, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    create(venv, symlinks=True)
    (site,) = venv.glob("lib/python*/site-packages")
    install(site, "1.0")
    declared = f"env: {{base: gpu-6, snapshot: true, python: {venv}/bin/python}}"
    shop.write("sgpu.yml", "env: {base: gpu-6}", declared)
    shop.write("train.py", '"n": n', '"n": __import__("greeting").VERSION')
    shop.apply()
    assert {change.action for change in shop.plan().changes} == {Action.NO_OP}

    install(site, "2.0")

    (job,) = [change for change in shop.plan().changes if str(change.address) == "job.nightly"]
    assert (job.action, job.reason) == (Action.UPDATE, Reason.ENVIRONMENT_CHANGED)
    assert job.environment is not None
    (package,) = job.environment.packages
    assert (package.name, package.before, package.after) == ("greeting", "1.0", "2.0")
    shop.apply()
    assert shop.start() == "SUCCESS"
    assert [item["n"] for item in shop.returned(0)] == ["2.0", "2.0"]


@pytest.mark.expensive
def test_an_image_is_launched_with_an_environment_beside_it(shop: Shop) -> None:
    shop.write("sgpu.yml", "env: {base: gpu-6}", "image: main.ml.trainer:3")
    shop.apply()

    _, settings = shop.job()
    assert settings["tasks"][0]["environment_key"] == "default"
    assert shop.start() == "SUCCESS"
    assert shop.change().action is Action.NO_OP


def install(site: Path, version: str) -> None:
    for old in site.glob("greeting*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    (site / "greeting.py").write_text(f"VERSION = '{version}'\n")
    info = site / f"greeting-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n")
    (info / "RECORD").write_text(f"greeting.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


def test_each_launch_of_a_job_tells_the_webhook_of_its_run(shop: Shop, hook: WebhookServer) -> None:
    told = "on_finish: {webhook: 'databricks:ml/url'}"
    shop.write("sgpu.yml", "    timeout: 1h\n", f"    timeout: 1h\n    {told}\n")
    client = WorkspaceClient(host=shop.server.url, token=shop.token)
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "url", string_value=hook.url)
    shown = {field.path: field.after for field in shop.change().fields}
    assert shown["run.on_finish.webhook.url"] == {"secret": "databricks:ml/url"}
    shop.apply()
    assert shop.job()[1]["email_notifications"] == {}
    assert shop.change().action is Action.NO_OP

    assert [shop.start(), shop.start()] == ["SUCCESS", "SUCCESS"]

    assert [body["address"] for body in hook.bodies] == ["job.nightly"] * 2
    assert len({headers["X-Sgpu-Delivery"] for headers, _ in hook.requests}) == 2
