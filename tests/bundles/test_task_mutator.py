"""Tasks of the bundle's own jobs that launch a run."""

import os
from typing import Any

import pytest
from databricks.bundles.core import Bundle
from databricks.bundles.jobs import Job, Task

from sgpu_decl.bundles import sgpu_task, sgpu_tasks
from tests.bundles.cli_standin import CliStandin
from tests.bundles.test_loader import write

EACH = """\
        - task_key: each
          for_each_task:
            inputs: "[1]"
            task: {task_key: one, description: "sgpu: train"}
"""


def mutated(bundle: CliStandin) -> Any:
    return bundle.build("apply_mutators", bundle.config())


def test_a_marked_task_is_filled_and_all_else_stays_as_the_team_has_it(bundle: CliStandin) -> None:
    before = bundle.config()["resources"]["jobs"]["etl"]
    built = mutated(bundle)
    assert (built.code, built.diagnostics) == (0, []), built.stderr
    job = built.jobs["etl"]
    prep, gpu = job["tasks"]
    assert prep == before["tasks"][0]
    assert {key: gpu[key] for key in before["tasks"][1]} == before["tasks"][1]
    task = gpu["ai_runtime_task"]
    assert task["deployments"][0]["compute"] == {
        "accelerator_type": "GPU_1xA10", "accelerator_count": 2,
    }  # fmt: skip
    assert (gpu["max_retries"], gpu["timeout_seconds"]) == (0, 3600 + 24 * 3600 + 600)
    assert gpu["environment_key"] == "gpu"
    assert job["environments"] == [{"environment_key": "gpu", "spec": {"environment_version": "6"}}]
    assert job["max_concurrent_runs"] == 1, "launches of one job share a folder"
    assert job["queue"] == before["queue"]
    assert job["name"] == before["name"] == "[dev me] etl"


def test_a_job_without_a_mark_is_not_touched(bundle: CliStandin) -> None:
    job = Job(name="x", tasks=[Task(task_key="a", description="about sgpu: train")])
    assert sgpu_tasks.function(Bundle(target="dev"), job) is job
    assert not (bundle.folder / "sgpu").exists()


def test_a_task_made_in_python_is_filled(bundle: CliStandin) -> None:
    task = sgpu_task("train", task_key="fit", depends_on=[{"task_key": "prep"}])
    assert (task.task_key, task.description) == ("fit", "sgpu: train")
    job = Job(name="x", tasks=[Task(task_key="prep"), task, sgpu_task("train")])
    filled = sgpu_tasks.function(Bundle(target="dev"), job).as_dict()
    _, fit, train = filled["tasks"]
    assert fit["depends_on"] == [{"task_key": "prep"}]
    commands = {one["ai_runtime_task"]["deployments"][0]["command_path"] for one in (fit, train)}
    assert len(commands) == 2, "each task has a folder of its own"
    assert {one["environment_key"] for one in filled["environments"]} == {"fit", "train"}


def test_a_longer_description_has_the_mark_in_its_first_line(bundle: CliStandin) -> None:
    task = Task(task_key="a", description="sgpu: train\ntrains on two GPUs")
    job = sgpu_tasks.function(Bundle(target="dev"), Job(name="x", tasks=[task]))
    assert job.tasks[0].ai_runtime_task is not None
    assert job.tasks[0].description == "sgpu: train\ntrains on two GPUs"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("sgpu: train", "sgpu: trian", "did you mean `sgpu: train`?"),
        ('description: "sgpu: train"', 'description: "sgpu: train"\n          max_retries: 3',
         "write `retry` in the run"),
        ('description: "sgpu: train"',
         'description: "sgpu: train"\n          notebook_task: {notebook_path: /x}',
         "has `notebook_task` too"),
        ("      tasks:\n", "      environments: [{environment_key: gpu}]\n      tasks:\n",
         "rename the task"),
        ("    etl:\n", "    other: {name: etl}\n    etl:\n", "give each job a name of its own"),
        ("        - task_key: gpu\n", EACH + "        - task_key: gpu\n",
         "give each launch a task"),
        ('sync: {include: ["sgpu/**"]}', "", "add `sync: "),
    ],
)  # fmt: skip
def test_what_cannot_be_filled_is_said_without_a_traceback(
    bundle: CliStandin, old: str, new: str, told: str
) -> None:
    write(bundle, "databricks.yml", old, new)
    built = mutated(bundle)
    assert built.code == 1
    (error,) = built.diagnostics
    assert error["path"] == "resources.jobs.etl"
    assert error["detail"].startswith("sgpu: ")
    assert told in error["detail"]
    assert "Traceback" not in error["detail"]
    assert "File" not in error["detail"]


def test_errors_of_the_run_come_with_their_places(bundle: CliStandin) -> None:
    write(bundle, "sgpu.yml", "gpus: 2", "gpus: 3\n    colour: red")
    (error,) = mutated(bundle).diagnostics
    assert "sgpu.yml:7:5: error: " in error["detail"]
    assert "colour" in error["detail"]


def test_a_run_with_a_matrix_is_not_one_launch(bundle: CliStandin) -> None:
    text = (bundle.folder / "sgpu.yml").read_text()
    text = text[: text.index("jobs:")].replace('"${var.lr}"', "1.0")
    (bundle.folder / "sgpu.yml").write_text(text + "    matrix: {lr: [1, 2]}\n")
    (error,) = mutated(bundle).diagnostics
    assert "`train` has a matrix" in error["detail"]


def test_the_mutator_alone_needs_no_jobs_in_the_project(bundle: CliStandin) -> None:
    text = (bundle.folder / "sgpu.yml").read_text()
    (bundle.folder / "sgpu.yml").write_text(text[: text.index("jobs:")])
    assert mutated(bundle).code == 0
    assert os.listdir(next(bundle.folder.glob("sgpu/runs/*"))) == ["job.dev-me-etl"]
