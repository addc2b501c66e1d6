"""Jobs of several tasks, from plan to their launches in a workspace that runs here."""

import io
import json
import re
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.workspace import ImportFormat

from sgpu_decl.errors import SgpuError, StalePlan
from sgpu_decl.model.plan import Action, Reason
from sgpu_decl.planning.plan_file import load_plan
from sgpu_decl.testing.workspace import WorkspaceServer
from sgpu_decl.text.yaml_format import formatted
from sgpu_decl.views.plan_job_fields import in_words_of_yaml
from tests.backends.databricks.test_job_runs import CODE
from tests.backends.databricks.test_job_runs import Shop as OneRun
from tests.support import some

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
    backend: databricks
jobs:
  nightly:
    parameters: {day: "2026-11-01"}
    health: {longer_than: 3h}
    notify: {failure: [ml@example.com, {webhook: hook}], slow: [{webhook: hook}]}
    tasks:
      prepare: {python: prepare.py, args: [--day, "${job.parameters.day}"], timeout: 10m}
      train: {run: train, after: [prepare]}
      report: {notebook: {path: ./report.ipynb, parameters: {k: v}}, after: [train], if: all_done}
      publish:
        task: {sql_task: {warehouse_id: w, file: {path: /x}}}
        after: [report, train]
"""
PUBLISH = PROJECT[PROJECT.index("      publish:") :]
CONDITION = """\
      check: {task: {condition_task: {op: EQUAL_TO, left: "${job.parameters.day}", right: today}}}
      "yes": {python: words.py, after: [check.true]}
      "no": {python: words.py, after: [check.false]}
"""
WRITE = """\
import json
with open("/Workspace/Shared/prepared.json", "w") as file:
    json.dump([GREETING, *sys.argv[1:]], file)
"""
PREPARE = """\
import sys
from words import GREETING
print(GREETING, sys.argv[1:])
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "metadata": {}, "source": ["print(1)"], "outputs": [],
         "execution_count": None}
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}  # fmt: skip


class Shop(OneRun):
    """A project whose job has several tasks."""

    def edit(self, **settings: Any) -> None:
        """As somebody does in the workspace."""
        self.api("POST", "update", job_id=self.job()[0], new_settings=settings)


@pytest.fixture
def shop(project: Any, server: WorkspaceServer, token: str) -> Shop:
    (project / "run.yaml").unlink()
    for name, text in {
        "sgpu.yml": PROJECT,
        "train.py": CODE,
        "prepare.py": PREPARE,
        "words.py": "GREETING = 'hello'\n",
        "report.ipynb": json.dumps(NOTEBOOK),
    }.items():
        (project / name).write_text(text)
    return Shop(project, server, token, "sgpu.yml")


def told(shop: Shop) -> dict[str, tuple[Any, Any]]:
    """The changed fields of the job as the YAML says them."""
    (change,) = [one for one in in_words_of_yaml(shop.plan()).changes if one.fields]
    return {field.path: (field.before, field.after) for field in change.fields}


def test_a_job_of_several_tasks_is_made_as_it_is_declared(shop: Shop) -> None:
    planned = shop.change()
    assert (str(planned.address), planned.action) == ("job.nightly", Action.CREATE)
    shown = {path: after for path, (_, after) in told(shop).items()}
    assert shown["tasks.prepare.python"] == "prepare.py"
    assert shown["tasks.prepare.args"] == ["--day", "${job.parameters.day}"]
    assert shown["tasks.train.run.args.n"] == 3
    assert shown["tasks.train.after"] == ["prepare"]
    assert shown["tasks.report.if"] == "all_done"
    assert shown["tasks.report.notebook.path"] == "report.ipynb"
    assert shown["tasks.publish.task.sql_task.warehouse_id"] == "w"
    assert shown["health.longer_than"] == "3h"
    assert "notify.failure" in shown
    assert not [path for path in shown if path.startswith("on_finish")]
    assert shown["parameters.day"] == "2026-11-01"
    assert not [path for path in shown if "_task." in path and "publish" not in path]

    shop.apply()

    assert shop.change().action is Action.NO_OP
    settings = shop.job()[1]
    tasks = {task.pop("task_key"): task for task in settings["tasks"]}
    assert not [key for task in tasks.values() for key in task if key in ("run", "kind", "staged")]
    archive, *arguments = tasks["prepare"]["spark_python_task"]["parameters"]
    assert re.match("/Workspace/.+/objects/code/", archive)
    assert arguments == ["prepare.py", "--day", "{{job.parameters.day}}"]
    assert tasks["prepare"]["timeout_seconds"] == 600
    assert tasks["train"]["depends_on"] == [{"task_key": "prepare"}]
    assert tasks["train"]["environment_key"] == "train"
    assert tasks["report"]["run_if"] == "ALL_DONE"
    assert tasks["report"]["notebook_task"]["notebook_path"].endswith("/report")
    assert tasks["publish"]["sql_task"] == {"warehouse_id": "w", "file": {"path": "/x"}}
    assert settings["parameters"] == [{"name": "day", "default": "2026-11-01"}]
    assert settings["webhook_notifications"]["on_failure"] == [{"id": "hook"}]
    assert len({task.get("environment_key") for task in tasks.values()}) == 3
    assert len(shop.folders()) == 3, "of a run, a script and a notebook"
    path = tasks["report"]["notebook_task"]["notebook_path"]
    client = WorkspaceClient(host=shop.server.url, token=shop.token)
    assert str(client.workspace.get_status(path).object_type) == "ObjectType.NOTEBOOK"


CHANGES = [
    ("{n: 3}", "{n: 4}", "tasks.train.run.args.n", 7),
    ("--day,", "--date,", "tasks.prepare.args", 18),
    ("{k: v}", "{k: w}", "tasks.report.notebook.parameters.k", 20),
    ("if: all_done", "if: none_failed", "tasks.report.if", 20),
    ("after: [prepare]", "after: []", "tasks.train.after", 19),
    ("warehouse_id: w", "warehouse_id: v", "tasks.publish.task.sql_task.warehouse_id", 22),
    ("timeout: 10m", "timeout: 20m", "tasks.prepare.timeout", 18),
    ("longer_than: 3h", "longer_than: 4h", "health.longer_than", 15),
    ('"2026-11-01"', '"2026-11-02"', "parameters.day", 14),
    ("{webhook: hook}], slow", "{webhook: other}], slow", "notify.failure", 16),
]


def test_one_changed_field_is_one_path_at_its_line(shop: Shop) -> None:
    shop.apply()
    for old, new, path, line in CHANGES:
        shop.write("sgpu.yml", old, new)
        change = shop.change()
        assert (change.action, change.reason) == (Action.UPDATE, Reason.CONFIG_CHANGED), path
        assert list(told(shop)) == [path]
        (place,) = {field.origin for field in change.fields}
        assert some(place).line == line, path
        shop.write("sgpu.yml", new, old)
    assert shop.change().action is Action.NO_OP


def test_changed_files_are_told_and_staged_and_the_old_ones_go(shop: Shop) -> None:
    shop.apply()
    before = shop.folders()
    shop.write("words.py", "hello", "bye")
    change = shop.change()
    assert (change.action, change.reason) == (Action.UPDATE, Reason.CODE_CHANGED)
    assert some(change.code).changed == ("words.py",)
    assert set(told(shop)) >= {"tasks.prepare.staged.code"}
    assert "tasks.prepare.staged.counted" not in told(shop)
    shop.apply()
    assert shop.change().action is Action.NO_OP
    assert len(shop.folders()) == 3
    assert len(set(shop.folders()) & set(before)) == 1, "the notebook's"
    shop.write("report.ipynb", "print(1)", "print(2)")
    assert shop.change().reason is Reason.CODE_CHANGED
    assert "tasks.report.staged.notebook" in told(shop)
    shop.apply()
    assert shop.change().action is Action.NO_OP
    shop.write("sgpu.yml", PUBLISH, "")
    assert set(told(shop)) == {
        "tasks.publish.task.sql_task.file.path", "tasks.publish.task.sql_task.warehouse_id",
        "tasks.publish.after",
    }  # fmt: skip
    shop.write("sgpu.yml", "nightly", "weekly")


def test_edits_of_tasks_are_drift_each_at_its_field(shop: Shop) -> None:
    shop.apply()
    job_id, settings = shop.job()
    tasks = {task["task_key"]: task for task in settings["tasks"]}
    tasks["prepare"]["spark_python_task"]["parameters"][-1] = "today"
    tasks["report"]["depends_on"] = [{"task_key": "prepare"}]
    tasks["publish"]["disabled"] = True
    tasks["train"]["max_retries"] = 5
    environments = settings["environments"]
    environments[0]["spec"]["project_environment"] = "/x/pyproject.toml"
    shop.edit(tasks=list(tasks.values()), environments=environments,
              triggers=[{"periodic": {"interval": 1, "unit": "DAYS"}}])  # fmt: skip
    change = shop.change()
    assert (change.action, change.reason) == (Action.UPDATE, Reason.LIVE_DRIFTED)
    key = environments[0]["environment_key"]
    assert set(told(shop)) == {
        "tasks.prepare.args", "tasks.report.after", "tasks.publish.task.disabled",
        "tasks.train.max_retries", f"environments.{key}.spec.project_environment", "triggers",
    }  # fmt: skip
    assert told(shop)["tasks.report.after"] == (["prepare"], ["train"])
    shop.apply()
    assert shop.change().action is Action.NO_OP
    assert shop.job()[0] == job_id


def test_what_is_wrong_with_a_file_or_a_task_of_the_platform_is_told(shop: Shop) -> None:
    shop.write("sgpu.yml", "python: prepare.py", "python: prepar.py")
    shop.write("report.ipynb", '"cells"', '"cell"')
    shop.write("sgpu.yml", "warehouse_id: w", "warehous_id: w")
    checks = {check.code: check for check in shop.plan().checks if check.severity == "error"}
    assert "did you mean `prepare.py`?" in str(checks["task_file_missing"].hint)
    assert str(checks["task_file_missing"].place).endswith(":18:25")
    assert "it has no list of cells" in checks["no_notebook"].summary
    assert "`python:" not in str(checks["no_notebook"].hint)
    bad = [check for check in shop.plan().checks if check.code == "bad_task"]
    assert [check.summary for check in bad] == ["`task.sql_task` has no field `warehous_id`"]
    assert bad[0].hint == "did you mean `warehouse_id`?"
    assert some(bad[0].place).line == 22


def test_launches_run_as_whom_the_file_says(shop: Shop) -> None:
    shop.write("sgpu.yml", "    health:", "    run_as: {service_principal: sp}\n    health:")
    shop.apply()
    assert shop.job()[1]["run_as"] == {"service_principal_name": "sp"}
    assert shop.change().action is Action.NO_OP
    codes = [check.code for check in shop.plan().checks]
    assert "job_owner_changed" not in codes
    assert "run_as_cannot_read" in codes
    assert "unknown_principal" not in codes
    shop.edit(run_as={"user_name": "eve@example.com"})
    assert told(shop) == {"run_as.service_principal": (None, "sp")}
    shop.apply()
    assert shop.job()[1]["run_as"] == {"service_principal_name": "sp"}


def test_a_job_of_the_workspace_is_written_with_its_files(shop: Shop) -> None:
    report = json.dumps(NOTEBOOK)
    auto = ImportFormat.AUTO
    for name, text in {"report.ipynb": report, "prepare.py": "print(1)\n"}.items():
        WorkspaceClient().workspace.upload(
            f"/Shared/{name}", io.BytesIO(text.encode()), format=auto
        )
    made = shop.api(
        "POST",
        "create",
        name="old",
        tasks=[
            {"task_key": "prepare", "environment_key": "e",
             "spark_python_task": {"python_file": "/Shared/prepare.py"}},
            {"task_key": "report", "notebook_task": {"notebook_path": "/Shared/report"}},
            {"task_key": "gone", "notebook_task": {"notebook_path": "/Shared/gone"}},
        ],
        environments=[{"environment_key": "e", "spec": {"environment_version": "4"}}],
    )  # fmt: skip
    jobs = shop.open().jobs
    file = shop.project / "jobs" / "old.yml"
    lost, files = jobs.write("job.old", str(made["job_id"]), file)
    text = file.read_text()
    assert formatted(text, "old.yml") == (text, ())
    assert lost == ()
    names = [path.removeprefix(f"{file.parent}/") for path in files]
    assert names == ["old.yml", "old/prepare.py", "old/report.ipynb"]
    assert json.loads((file.parent / "old" / "report.ipynb").read_text()) == NOTEBOOK
    with pytest.raises(SgpuError, match="exists"):
        jobs.write("job.old", str(made["job_id"]), file.with_name("other.yml"))
    assert not file.with_name("other.yml").exists()
    shop.write("sgpu.yml", "jobs:", "include: [jobs/*.yml]\njobs:")
    assert [check.code for check in shop.plan().checks if check.severity == "error"] == []


def test_whoever_is_not_there_is_told_by_the_plan(shop: Shop) -> None:
    shop.write("sgpu.yml", "    health:", "    run_as: {service_principal: trainer}\n    health:")
    (finding,) = [check for check in shop.plan().checks if check.code == "unknown_principal"]
    assert "shows no service principal `trainer`" in finding.summary
    assert some(finding.place).line == 15
    shop.write("sgpu.yml", "service_principal: trainer", "user: eve@example.com")
    assert "unknown_principal" not in [check.code for check in shop.plan().checks]  # unseen


REPORT = """\
import json, os
day = dbutils.widgets.get("day")
assert dbutils.widgets.get("k") == "v"
with open("/Workspace/Shared/report.json", "w") as file:
    json.dump({"day": day}, file)
"""


def test_its_tasks_run_in_order_with_the_parameters_of_the_launch(shop: Shop) -> None:
    """A Python file finds its code by the assumption `script-on-serverless`."""
    shop.write("sgpu.yml", PUBLISH, CONDITION)
    notebook = {**NOTEBOOK, "cells": [{"cell_type": "code", "source": [REPORT]}]}
    (shop.project / "report.ipynb").write_text(json.dumps(notebook))
    (shop.project / "prepare.py").write_text(PREPARE + WRITE)
    shop.apply()
    job_id, _ = shop.job()
    asked = {"job_id": job_id, "job_parameters": {"day": "today"}}
    run = shop.ended(shop.api("POST", "run-now", **asked)["run_id"])
    states = {task["task_key"]: task["state"]["result_state"] for task in run["tasks"]}
    assert states == {
        "prepare": "SUCCESS", "train": "SUCCESS", "report": "SUCCESS", "check": "SUCCESS",
        "yes": "SUCCESS", "no": "EXCLUDED",
    }  # fmt: skip
    shared = shop.tenant.folder / "Workspace" / "Shared"
    assert json.loads((shared / "prepared.json").read_text()) == ["hello", "--day", "today"]
    assert json.loads((shared / "report.json").read_text()) == {"day": "today"}
    (outputs,) = [
        found
        for folder in shop.folders()
        if (found := sorted(folder.glob("back/0/node_*/ranks/*/output.json")))
    ]
    assert [json.loads(one.read_bytes()) for one in outputs] == [
        {"rank": 0, "n": 3}, {"rank": 1, "n": 3},
    ]  # fmt: skip


def test_a_job_of_the_workspace_is_written_included_and_adopted(shop: Shop) -> None:
    made = {
        "name": "theirs",
        "tasks": [
            {"task_key": "a", "notebook_task": {"notebook_path": "/Shared/a"}},
            {"task_key": "b", "sql_task": {"warehouse_id": "w", "file": {"path": "/x"}},
             "depends_on": [{"task_key": "a"}]},
        ],
        "job_clusters": [{"job_cluster_key": "c", "new_cluster": {"num_workers": 1}}],
    }  # fmt: skip
    job_id = str(shop.api("POST", "create", **made)["job_id"])
    (shop.project / "sgpu.yml").write_text("project: {name: shop}\ninclude: [jobs/*.yml]\n")
    path = shop.project / "jobs" / "theirs.yml"
    lost, _ = shop.open().jobs.write("job.theirs", job_id, path)
    assert lost == ("job_clusters.c.new_cluster.num_workers",)
    shop.open().jobs.adopt("job.theirs", job_id)
    # A job that says nothing of a queue has none, and the file says so.
    assert list(told(shop)) == ["job_clusters.c.new_cluster.num_workers", "on_overlap"]
    with pytest.raises(SgpuError, match="exists"):
        shop.open().jobs.write("job.theirs", job_id, path)


def test_fields_of_tasks_are_left_to_others_by_their_names_in_the_file(shop: Shop) -> None:
    ignored = "[tasks.prepare.args, tasks.publish.task.sql_task.warehouse_id, tasks.report.if]"
    shop.write(
        "sgpu.yml", "    health:", f"    lifecycle: {{ignore_changes: {ignored}}}\n    health:"
    )
    shop.apply()
    tasks = {task["task_key"]: task for task in shop.job()[1]["tasks"]}
    tasks["prepare"]["spark_python_task"]["parameters"][-1] = "today"
    tasks["publish"]["sql_task"]["warehouse_id"] = "other"
    tasks["report"]["run_if"] = "NONE_FAILED"
    shop.edit(tasks=list(tasks.values()))
    assert shop.change().action is Action.NO_OP
    tasks["report"]["max_retries"] = 1
    shop.edit(tasks=list(tasks.values()))
    assert list(told(shop)) == ["tasks.report.notebook.retries"]
    shop.apply()
    kept = {task["task_key"]: task for task in shop.job()[1]["tasks"]}
    assert kept["publish"]["sql_task"]["warehouse_id"] == "other"
    assert kept["prepare"]["spark_python_task"]["parameters"][-1] == "today"
    assert shop.change().action is Action.NO_OP


def test_a_saved_plan_takes_the_code_along_and_refuses_another_notebook(shop: Shop) -> None:
    saved = shop.project.parent / "saved.plan"
    session = shop.open()
    session.save(session.plan(), saved)
    shop.write("words.py", "hello", "bye")
    session = shop.open()
    assert session.apply(load_plan(saved)).failed == ()
    assert shop.change().reason is Reason.CODE_CHANGED
    shop.write("report.ipynb", "print(1)", "print(2)")
    session = shop.open()
    session.save(session.plan(), saved)
    shop.write("report.ipynb", "print(2)", "print(3)")
    ((_, refused),) = shop.open().apply(load_plan(saved)).failed
    assert "the notebook `report.ipynb` here is not the one that was planned" in str(refused)


def test_files_of_tasks_are_reviewed_whoever_applies(shop: Shop) -> None:
    session = shop.open()
    assert session.propose(session.plan()) is not None
    shop.write("words.py", "hello", "bye")
    with pytest.raises(StalePlan):
        reviewed(shop)
    shop.write("words.py", "bye", "hello")
    reviewed(shop)
    assert shop.change().action is Action.NO_OP
    shop.write("sgpu.yml", "--day", "--date")
    with pytest.raises(StalePlan) as refused:
        reviewed(shop)
    (finding,) = refused.value.diagnostics
    assert "tasks.prepare.python.args" in finding.summary


def reviewed(shop: Shop) -> None:
    session = shop.open()
    prepared = session.plan()
    session.check_reviewed(prepared)
    session.apply(prepared, reviewed=True)


def test_a_job_that_goes_takes_all_its_folders_along(shop: Shop) -> None:
    shop.apply()
    shop.apply(destroy=True)
    assert (shop.folders(), shop.staged("code")) == ([], [])


@pytest.mark.parametrize("name", ["run_script.py", "report", "_air.py"])
def test_what_somebody_deleted_of_a_task_is_staged_again(shop: Shop, name: str) -> None:
    shop.apply()
    (file,) = [one for folder in shop.folders() for one in folder.glob(name)]
    file.unlink()
    assert [(field.path, field.drifted) for field in shop.change().fields] == [("staged", True)]
    shop.apply()
    assert file.exists()
    assert shop.change().action is Action.NO_OP


def test_a_job_of_one_run_becomes_one_of_several_tasks_and_back(shop: Shop) -> None:
    shop.apply()
    job_id = shop.job()[0]
    several = (shop.project / "sgpu.yml").read_text()
    (shop.project / "sgpu.yml").write_text(
        several[: several.index("jobs:")] + "jobs: {nightly: {run: train}}\n"
    )
    shop.apply()
    assert shop.change().action is Action.NO_OP
    assert len(shop.folders()) == 1
    (shop.project / "sgpu.yml").write_text(several)
    shop.apply()
    assert shop.change().action is Action.NO_OP
    assert (len(shop.folders()), shop.job()[0]) == (3, job_id)
