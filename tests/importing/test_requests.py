"""What sgpu sends for an imported workload asks a workspace for what `databricks air` asks for."""

from typing import Any

from sgpu_decl.backends.databricks.launching.submit import (
    StagedLaunch,
    environment_of,
    retries_of,
    task_of,
)
from sgpu_decl.config.run import RunConfig, run_config
from sgpu_decl.model.jsonable import Spec
from tests.importing.conftest import Import
from tests.importing.test_air_workload import LEAST, WHOLE

HOME = "/Workspace/Users/a@example.com"


def config(values: dict[str, Any]) -> RunConfig:
    fields = {**values, "backend": {"kind": values["backend"]}}
    return run_config(values["name"], Spec.of({k: v for k, v in fields.items() if k != "name"}))


def task(run: RunConfig) -> dict[str, Any]:
    staged = StagedLaunch(
        config=run, folder="/Workspace/launch", experiments=HOME, placement=None, code="/code"
    )
    return dict(task_of(staged, run_name="train-1"))


def test_the_task_of_a_whole_workload(imported: Import) -> None:
    """Source of the other side: `buildSubmitPayload` of `cmd/air/runsubmit.go`."""
    run = config(imported(WHOLE).yaml)
    assert task(run) == {
        "experiment": "my-training",
        "mlflow_experiment_directory": "/Workspace/Users/a@example.com/all",
        "mlflow_run": "first",
        "mlflow_artifact_location": "dbfs:/Volumes/a/b/c",
        "deployments": [
            {
                "command_path": "/Workspace/launch/command.sh",
                "compute": {"accelerator_type": "GPU_8xH100", "accelerator_count": 16},
            }
        ],
        "code_source_path": "/code",
        "priority_class": "NORMAL",
    }
    assert environment_of(run) == {
        "base_environment": "workspace-base-environments/databricks_ai_v5",
        "dependencies": ["peft==0.17.1"],
    }
    assert retries_of(run) == 0


def test_the_defaults_of_a_least_workload(imported: Import) -> None:
    run = config(imported(LEAST).yaml)
    assert environment_of(run) == {"environment_version": "6"}
    assert retries_of(run) == 3
    assert (task(run)["experiment"], task(run)["mlflow_experiment_directory"]) == ("train", HOME)
