"""Jobs of this machine from plan to destroy: nothing but the file asks anybody."""

import json

import pytest

from tests.backends.local.jobs.conftest import Shop

ONE_RUN = """\
project: {name: shop}
runs:
  a: {gpus: 1, type: CPU, command: 'true'}
jobs: {j: {run: a, schedule: 0 0 2 * * ?}}
"""


def test_it_is_created_once_and_an_edit_is_an_update_of_that_field(shop: Shop) -> None:
    plan = shop.data("plan")
    (change,) = plan["changes"]
    assert (change["address"], change["action"], change["backend"]) == (
        "job.nightly", "create", "local",
    )  # fmt: skip
    assert change["code"]["files"] == 4
    created = shop.done("apply", "-y").out
    assert shop.done("plan", "--detailed-exitcode").out.startswith("No changes.")
    (known,) = shop.data("status")["jobs"]
    assert (known["state"], known["links"]) == ("manual", {})
    assert 'tasks.prepare.python: "steps/prepare.py"' in created
    assert "kind" not in created

    shop.replace("if: all_done", "if: none_failed, timeout: 5m")
    (change,) = shop.data("plan")["changes"]
    fields = {field["path"]: field["after"] for field in change["fields"]}
    assert fields == {"tasks.tidy.if": "none_failed", "tasks.tidy.timeout": "5m"}
    assert {field["origin"]["line"] for field in change["fields"]} == {10}
    (shop.folder / "train.py").write_text("def main():\n    return 5\n")
    shop.done("apply", "-y")
    assert shop.data("plan")["summary"]["no_op"] == 1
    assert shop.data("show", "job.nightly")["live"]["tasks"]["tidy"]["if"] == "none_failed"


def test_what_changed_in_the_file_of_the_job_is_drift(shop: Shop) -> None:
    shop.done("apply", "-y")
    (file,) = (shop.folder / ".sgpu").glob("default/jobs/*/job.json")
    job = json.loads(file.read_text())
    job["document"]["tasks"]["train"]["after"] = []
    file.write_text(json.dumps(job))
    assert "because: it was edited on this machine\n" in shop.done("plan").out
    (change,) = shop.data("plan")["changes"]
    assert (change["reason"], change["fields"][0]["path"]) == ("live_drifted", "tasks.train.after")
    file.unlink()
    assert "deleted on this machine" in shop.done("show", "job.nightly").out
    assert shop.data("plan")["changes"][0]["reason"] == "previous_lost"
    shop.done("apply", "-y")
    assert shop.data("plan")["summary"]["no_op"] == 1


def test_a_job_of_one_run_is_kept_here_without_being_told_so(shop: Shop) -> None:
    (shop.folder / "sgpu.yml").write_text(ONE_RUN)
    (check,) = shop.checks(id="job_settings_unkept")
    assert check["severity"] == "info"
    assert check["place"]["line"] == 4
    assert "keeps no `schedule` of a job" in check["summary"]
    shop.done("apply", "-y")
    (known,) = shop.data("status")["jobs"]
    assert known["backend"] == "local"
    assert shop.data("plan")["summary"]["no_op"] == 1


@pytest.mark.parametrize(
    ("task", "code", "words"),
    [
        ("{notebook: report.ipynb}", "task_elsewhere", "executes no notebooks"),
        ("{notebook: /Workspace/r}", "task_elsewhere", "`sgpu dev workspace`"),
        ("{task: {sql_task: {warehouse_id: w}}}", "task_elsewhere", "dev workspace"),
        ("{python: tidy.py, dependencies: [x]}", "task_elsewhere", "make it a run"),
        ("{python: tidy.py, args: ['{{job.run_id}}']}", "task_elsewhere", "`{{job.run_id}}`"),
        ("{run: far}", "run_refused", "give both the same `backend`"),
        ("{run: reader}", "run_refused", "`${run.train.output}`"),
    ],
)
def test_a_task_that_this_machine_lacks_is_refused_at_its_place(
    shop: Shop, task: str, code: str, words: str
) -> None:
    (shop.folder / "report.ipynb").write_text('{"cells": []}')
    shop.replace("    backend: local", f"      other: {task}\n    backend: local")
    shop.replace("jobs:\n", "  far: {gpus: 1, type: A10, command: 'true', backend: databricks}\n"
                 "  reader: {gpus: 1, type: CPU, command: 'cat ${run.train.output}/x', "
                 "after: [train]}\njobs:\n")  # fmt: skip
    found = [one for one in shop.checks("--select", "job.*") if one["severity"] == "error"]
    (check,) = [one for one in found if one["id"] == code]
    line = (shop.folder / "sgpu.yml").read_text().splitlines()[check["place"]["line"] - 1]
    assert line.endswith(f"other: {task}")
    assert words in check["summary"] + check["hint"]
    shop.exits(1, "apply", "-y", "--select", "job.*")


def test_a_job_that_is_removed_or_destroyed_leaves_no_folder(shop: Shop) -> None:
    shop.done("apply", "-y")
    folder = shop.folder / ".sgpu/default/jobs"
    assert len(list(folder.iterdir())) == 1
    shop.done("destroy", "-y")
    assert list(folder.iterdir()) == []
    shop.done("destroy", "-y")
    shop.done("apply", "-y")
    assert shop.data("plan")["summary"]["no_op"] == 1
