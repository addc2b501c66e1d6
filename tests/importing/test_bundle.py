"""Databricks bundles with GPU tasks as projects."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databricks.bundles import jobs

from sgpu_decl.errors import InvalidInput
from sgpu_decl.importing.bundle_task import BUNDLE_TASK
from sgpu_decl.importing.tool_import import import_file
from sgpu_decl.importing.translation import Fate
from tests.importing.conftest import Imported

COMPUTE = {"accelerator_type": "GPU_8xH100", "accelerator_count": 16}
SCRIPT = '#!/usr/bin/env bash\nset -euo pipefail\ncd "$CODE_SOURCE_PATH"\ntorchrun train.py\n'

Write = Callable[..., Imported]


@pytest.fixture
def bundle(tmp_path: Path) -> Write:
    """Writes a bundle of one job, `nightly`, whose GPU task has `more`, and imports it."""

    def write(
        more: dict[str, Any] | None = None,
        *,
        job: dict[str, Any] | None = None,
        tasks: tuple[dict[str, Any], ...] = (),
        task: dict[str, Any] | None = None,
        root: dict[str, Any] | None = None,
    ) -> Imported:
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "run.sh").write_text(SCRIPT)
        runtime = {
            "experiment": "exp",
            "deployments": [{"command_path": "./run.sh", "compute": COMPUTE}],
            **(more or {}),
        }
        train = {"task_key": "train", "environment_key": "gpu", "ai_runtime_task": runtime}
        content = {
            "bundle": {"name": "shop"},
            **(root or {}),
            "resources": {
                "jobs": {
                    "nightly": {
                        "tasks": [*tasks, {**train, **(task or {})}],
                        "environments": [
                            {"environment_key": "gpu", "spec": {"environment_version": "5"}}
                        ],
                        **(job or {}),
                    }
                }
            },
        }
        path = tmp_path / "databricks.yml"
        path.write_text(json.dumps(content))
        return Imported(import_file(path))

    return write


def code_of(found: Imported) -> Any:
    return found.yaml["runs"]["train"].get("code")


PATH = "resources.jobs.nightly.tasks.0.ai_runtime_task.code_source_path"
ARTIFACT = {
    "type": "tgz",
    "path": ".",
    "include": ["src/a", "src/b.py"],
    "files": [{"source": "./dist/code.tgz"}],
}


def test_the_code_is_a_folder(bundle: Write) -> None:
    found = bundle({"code_source_path": "./src"})
    assert code_of(found) == {"root": "src"}
    assert found.fates[PATH] is Fate.CARRIED


def test_the_code_is_packed_by_an_artifact(bundle: Write) -> None:
    found = bundle({"code_source_path": "./dist/code.tgz"}, root={"artifacts": {"code": ARTIFACT}})
    assert code_of(found) == {"root": "src", "exclude": ["/*", "!/a", "!/b.py"]}
    assert found.fates[PATH] is Fate.CHANGED
    pinned = {"artifacts": {"code": {**ARTIFACT, "include": ["src"], "git": {"branch": "main"}}}}
    found = bundle({"code_source_path": "dist/code.tgz"}, root=pinned)
    assert code_of(found) == {"root": "src"}
    assert "sgpu takes the files of the checkout" in found.notes[PATH]


@pytest.mark.parametrize("path", ["./dist/code.tgz", "/Workspace/Shared/code.tar.gz", "absent"])
def test_the_code_is_an_archive_that_is_there(bundle: Write, path: str) -> None:
    found = bundle({"code_source_path": path})
    assert code_of(found) is None
    assert found.fates[PATH] is Fate.LOST
    assert "`code: {root: …}`" in (found.hints[PATH] or "")


def test_the_code_is_a_block(bundle: Write) -> None:
    block = {"root_path": "./src", "include_paths": ["a"], "git": {"commit": "abc"}}
    found = bundle({"code_source": block})
    assert code_of(found) == {"root": "src", "exclude": ["/*", "!/a"]}
    lost = "resources.jobs.nightly.tasks.0.ai_runtime_task.code_source.git.commit"
    assert found.of(Fate.LOST) == {lost}


def test_a_task_without_code_takes_none(bundle: Write) -> None:
    assert code_of(bundle()) == {"exclude": ["*"]}


def test_the_command_and_the_files_beside_it_stand_in_the_run(
    bundle: Write, tmp_path: Path
) -> None:
    (tmp_path / "env_vars.json").write_text('[{"name": "A", "value": "1"}]')
    secret = [{"name": "B", "secret_scope": "ml", "secret_key": "b"}]
    (tmp_path / "secret_env_vars.json").write_text(json.dumps(secret))
    (tmp_path / "hyperparameters.yaml").write_text("lr: 0.1\n")
    run = bundle({"code_source_path": "./src"}).yaml["runs"]["train"]
    assert run["command"] == (
        'export CODE_SOURCE_PATH="$PWD"\n' + SCRIPT.removeprefix("#!/usr/bin/env bash\n")
    )
    assert run["launch"] == {"per": "node"}
    assert run["env"] == {
        "base": "gpu-5",
        "variables": {"A": "1"},
        "secrets": {"B": "databricks:ml/b"},
    }
    assert run["parameters"] == {"lr": 0.1}


def test_a_variable_that_sgpu_refuses_costs_no_command(bundle: Write, tmp_path: Path) -> None:
    variables = [{"name": "RANK", "value": "1"}, {"name": "A", "value": "1"}]
    (tmp_path / "env_vars.json").write_text(json.dumps(variables))
    found = bundle()
    assert found.yaml["runs"]["train"]["env"]["variables"] == {"A": "1"}
    path = "resources.jobs.nightly.tasks.0.ai_runtime_task.deployments.0.command_path"
    assert "without the rest: sgpu sets `RANK` itself" in found.notes[path]


def test_a_command_elsewhere_is_said_to_be_there(bundle: Write) -> None:
    deployment = {"command_path": "/Workspace/Shared/run.sh", "compute": COMPUTE}
    found = bundle({"deployments": [deployment]})
    assert found.yaml["runs"]["train"]["command"] == ["bash", "/Workspace/Shared/run.sh"]
    path = "resources.jobs.nightly.tasks.0.ai_runtime_task.deployments.0.command_path"
    assert found.hints[path] == "write its content as `command`"


def test_a_file_of_somebody_else_shows_no_other_files(bundle: Write, tmp_path: Path) -> None:
    (tmp_path.parent / "secret.sh").write_text("password")
    (tmp_path / "link.sh").symlink_to(tmp_path.parent / "secret.sh")
    for path in ("../secret.sh", "link.sh"):
        found = bundle({"deployments": [{"command_path": path, "compute": COMPUTE}]})
        assert "password" not in found.file.text


def test_the_fields_of_the_task_are_those_of_the_run(bundle: Write) -> None:
    found = bundle(
        {
            "mlflow_experiment_directory": "/Workspace/Users/a/all/",
            "mlflow_run": "first",
            "priority_class": "CRITICAL",
            "unity_catalog_image_path": "a.b.c:1",
        },
        task={"max_retries": 2, "timeout_seconds": 5400, "min_retry_interval_millis": 30000},
    )
    run = found.yaml["runs"]["train"]
    assert (run["gpus"], run["type"], run["timeout"]) == (16, "GPU_8xH100", "90m")
    assert run["retry"] == {"max": 2, "on": ["infra", "error"], "backoff": "30s"}
    assert run["mlflow"] == {"experiment": "/Workspace/Users/a/all/exp", "run_name": "first"}
    assert (run["pool"], run["priority"], run["image"]) == ("on_demand", "critical", "a.b.c:1")
    assert "env" not in run
    assert found.of(Fate.LOST) == set()


def test_a_task_is_not_started_again_unless_it_says_so(bundle: Write) -> None:
    assert "retry" not in bundle().yaml["runs"]["train"]


def test_the_job_keeps_its_settings_and_other_tasks(bundle: Write, tmp_path: Path) -> None:
    (tmp_path / "prep.py").write_text("")
    found = bundle(
        job={
            "schedule": {"quartz_cron_expression": "0 0 2 * * ?", "timezone_id": "Europe/Berlin"},
            "parameters": [{"name": "day", "default": "1"}, {"name": "shard", "default": ""}],
            "tags": {"nightly": ""},
            "email_notifications": {"on_failure": ["a@example.com"]},
            "webhook_notifications": {"on_failure": [{"id": "hook"}]},
            "permissions": [{"level": "CAN_VIEW", "group_name": "ml"}],
            "continuous": {"pause_status": "PAUSED"},
        },
        tasks=(
            {
                "task_key": "prep",
                "environment_key": "gpu",
                "spark_python_task": {"python_file": "./prep.py", "parameters": ["--a"]},
            },
            {"task_key": "sql", "sql_task": {"warehouse_id": "x"}, "run_if": "ALL_DONE"},
        ),
        task={"depends_on": [{"task_key": "prep"}]},
    )
    assert found.yaml["jobs"]["nightly"] == {
        "tasks": {
            "prep": {"python": "prep.py", "args": ["--a"], "base": "gpu-5"},
            "sql": {"task": {"sql_task": {"warehouse_id": "x"}}, "if": "all_done"},
            "train": {"run": "train", "after": ["prep"]},
        },
        "parameters": {"day": "1", "shard": ""},
        "tags": {"nightly": ""},
        "schedule": "0 0 2 * * ?",
        "timezone": "Europe/Berlin",
        "queue": True,
        "permissions": [{"level": "view", "group": "ml"}],
        "notify": {"failure": ["a@example.com", {"webhook": "hook"}]},
    }
    assert found.of(Fate.LOST) == {"resources.jobs.nightly.continuous"}
    assert "resources.jobs.nightly.queue" in found.defaults


@pytest.mark.parametrize(
    "job", [{"parameters": [{"name": "day"}]}, {"tags": {"a": {"b": "c"}}}], ids=str
)
def test_settings_that_the_platform_refuses_are_lost(bundle: Write, job: dict[str, Any]) -> None:
    (setting,) = job
    found = bundle(job=job)
    assert found.of(Fate.LOST) == {f"resources.jobs.nightly.{setting}"}
    assert setting not in found.yaml["jobs"]["nightly"]


def test_files_variables_and_targets_of_the_bundle(bundle: Write, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "vars.yml").write_text(
        "variables: {gpus: {default: 8}, key: {description: needed}}\n"
        "resources: {pipelines: {p: {name: x}}}\n"
    )
    deployment = {
        "command_path": "${workspace.file_path}/run.sh",
        "compute": {**COMPUTE, "accelerator_count": "${var.gpus}"},
    }
    found = bundle(
        {"deployments": [deployment]},
        job={"name": "${bundle.target} nightly", "description": "of ${resources.jobs.a.id}"},
        root={
            "include": ["more/*.yml"],
            "run_as": {"user_name": "a@example.com"},
            "permissions": [{"level": "CAN_VIEW", "group_name": "ml"}],
            "targets": {
                "dev": {"mode": "development", "default": True},
                "prod": {
                    "run_as": {"service_principal_name": "1f3e"},
                    "variables": {"gpus": 16},
                    "workspace": {"host": "https://dbc-1.cloud.databricks.com", "root_path": "/x"},
                },
            },
        },
    )
    assert found.yaml["variables"] == {"gpus": {"default": 8}, "key": {"description": "needed"}}
    assert found.yaml["runs"]["train"]["gpus"] == "${var.gpus}"
    assert "torchrun" in found.yaml["runs"]["train"]["command"]
    assert found.yaml["jobs"]["nightly"]["name"] == "${target.name} nightly"
    assert found.yaml["targets"]["dev"] == {"mode": "development", "default": True}
    assert found.yaml["targets"]["prod"]["variables"] == {"gpus": 16}
    assert found.yaml["defaults"]["job"] == {
        "run_as": {"user": "a@example.com"},
        "permissions": [{"level": "view", "group": "ml"}],
    }
    assert found.yaml["targets"]["prod"]["run_as"] == {"service_principal": "1f3e"}
    host = found.yaml["targets"]["prod"]["defaults"]["run"]["backend"]["host"]
    assert host == "https://dbc-1.cloud.databricks.com"
    assert found.of(Fate.LOST) == {
        "resources.pipelines.p",
        "resources.jobs.nightly.description",
        "targets.prod.workspace.root_path",
    }


def test_the_older_task_is_a_run_too(bundle: Write) -> None:
    older = {
        "dl_runtime_image": "CLIENT-GPU-4",
        "command": "python train.py",
        "compute": {"num_gpus": 8, "gpu_type": "h100_80gb"},
        "yaml_parameters": "lr: 1",
    }
    found = bundle(tasks=({"task_key": "old", "gen_ai_compute_task": older},))
    run = found.yaml["runs"]["old"]
    assert (run["gpus"], run["type"], run["env"]["base"]) == (8, "H100", "gpu-4")
    assert (run["command"], run["parameters"]) == ("python train.py", {"lr": 1})


def test_a_bundle_without_gpu_tasks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "databricks.yml"
    path.write_text("bundle: {name: a}\nresources: {jobs: {a: {tasks: []}}}\n")
    with pytest.raises(InvalidInput, match="has no job with a GPU task"):
        import_file(path)


def test_every_field_of_a_gpu_task_has_a_rule() -> None:
    """The classes of the package name all of them."""
    models = {
        "ai_runtime_task": jobs.AiRuntimeTask,
        "ai_runtime_task.deployments.0": jobs.DeploymentSpec,
        "ai_runtime_task.deployments.0.compute": jobs.ComputeSpec,
    }
    for start, model in models.items():
        for field in dataclasses.fields(model):
            path = f"{start}.{field.name}"
            assert any(one == path or one.startswith(f"{path}.") for one in BUNDLE_TASK.fields), (
                path
            )
