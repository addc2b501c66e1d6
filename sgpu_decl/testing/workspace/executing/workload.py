"""What a task of a job asks for, of the kinds of task that can be executed here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgpu_decl.testing.workspace.accelerators import ACCELERATORS

__all__ = ["EXECUTED", "Workload", "workload_of"]

EXECUTED = (
    "ai_runtime_task", "spark_python_task", "notebook_task", "condition_task", "for_each_task",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One program on some nodes. `program` is a workspace path: of a bash script, or with `python`
    of a Python file that gets `arguments`, or a notebook that gets parameters."""

    accelerator: str
    gpus: int
    nodes: int
    program: str
    python: bool = False
    notebook: Mapping[str, str] | None = None
    arguments: tuple[str, ...] = ()
    pool: str | None = None
    code_source: str | None = None
    experiment: str | None = None
    experiment_directory: str | None = None
    mlflow_run: str | None = None
    artifact_location: str | None = None

    @property
    def gpus_per_node(self) -> int:
        """How many ranks a node is meant to have."""
        return self.gpus // self.nodes


def workload_of(task: Mapping[str, Any]) -> Workload:
    """The workload of a task that was validated."""
    if (asked := task.get("ai_runtime_task")) is not None:
        return _ai_runtime(asked)
    accelerator = (task.get("compute") or {}).get("hardware_accelerator", "")
    gpus = ACCELERATORS[accelerator] if accelerator else 0
    notebook = None
    if (script := task.get("spark_python_task")) is not None:
        program, arguments = script["python_file"], tuple(script.get("parameters") or ())
    else:
        program, arguments = task["notebook_task"]["notebook_path"], ()
        notebook = task["notebook_task"].get("base_parameters") or {}
    return Workload(
        accelerator=accelerator, gpus=gpus, nodes=1, program=program, python=True,
        arguments=arguments, notebook=notebook,
    )  # fmt: skip


def _ai_runtime(asked: Mapping[str, Any]) -> Workload:
    (deployment,) = asked["deployments"]
    compute = deployment["compute"]
    gpus = int(compute["accelerator_count"])
    return Workload(
        accelerator=compute["accelerator_type"],
        gpus=gpus,
        nodes=gpus // ACCELERATORS[compute["accelerator_type"]],
        program=deployment["command_path"],
        pool=compute.get("provisioned_capacity_id"),
        code_source=asked.get("code_source_path"),
        experiment=asked["experiment"],
        experiment_directory=asked.get("mlflow_experiment_directory"),
        mlflow_run=asked.get("mlflow_run"),
        artifact_location=asked.get("mlflow_artifact_location"),
    )
