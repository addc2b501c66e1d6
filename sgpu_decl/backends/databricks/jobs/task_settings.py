"""From the tasks of a job to those of its document, and where their files lie."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgpu_decl.backends.databricks.jobs.documents import DEPLOYMENTS, by_index
from sgpu_decl.backends.databricks.launching.submit import (
    DEFAULT_BASE,
    ENVIRONMENT,
    StagedLaunch,
    environment_of,
    environment_spec,
    present,
    retries_of,
    task_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.planning.machines import node_of
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.job import Job
from sgpu_decl.config.job_tasks import Notebook, Task, in_platform_words
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import ONE, TASKS
from sgpu_decl.model.jsonable import Json

RUN_SCRIPT = "run_script.py"
"""The file in a launch folder that executes a Python file of the repository."""

_TASK, _SCRIPT, _NOTEBOOK = "ai_runtime_task", "spark_python_task", "notebook_task"
_EXPERIMENTS = "mlflow_experiment_directory"
_PLACES = ("code_source_path", _EXPERIMENTS)
_NOTEBOOK_FILES = (".ipynb", ".py")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file of the repository that was staged: its launch folder, and the archive of its code."""

    folder: str
    code: str | None = None


Staged = StagedLaunch | StagedFile
Environments = dict[str, dict[str, Json]]


def tasks_of(
    job: Job, name: str, staged: Mapping[str, Staged]
) -> tuple[dict[str, Json], Environments]:
    """The tasks of a job by their keys, and the environments that they name. A job of one run or
    notebook has one task, which has the name of the job.

    Raises:
        BackendError: the platform has nothing of the kind.
    """
    if not job.tasks:
        run = staged.get(ONE)
        if isinstance(run, StagedLaunch):
            return {name: run_task(run)}, {ENVIRONMENT: environment_of(run.config)}
        notebook = job.notebook
        assert notebook is not None  # noqa: S101  a job has one of them
        return {name: _notebook_task(notebook, notebook.path, ENVIRONMENT)}, (
            _environment(ENVIRONMENT, notebook.base, notebook.dependencies)
        )
    tasks: dict[str, Json] = {}
    environments: Environments = {}
    for key, task in job.tasks.items():
        try:
            body, spec = _one_of_several(key, task, staged.get(key))
        except BackendError as error:
            if error.field is not None:
                error.field = f"{TASKS}.{key}.{error.field.rpartition('.')[2]}"
            raise
        tasks[key] = {**body, **_order(task)}
        environments |= spec
    return tasks, environments


def _one_of_several(
    key: str, task: Task, staged: Staged | None
) -> tuple[dict[str, Json], Environments]:
    if isinstance(staged, StagedLaunch):
        return run_task(staged, key), {key: environment_of(staged.config)}
    limits: dict[str, Json] = {
        "max_retries": task.retries or None,
        "timeout_seconds": max(1, round(task.timeout.seconds)) if task.timeout else None,
    }
    if task.notebook is not None:
        path = task.notebook.path
        if isinstance(staged, StagedFile):
            path = f"{staged.folder}/{_notebook_name(path)}"
        body = _notebook_task(task.notebook, path, key)
        environment = _environment(key, task.notebook.base, task.notebook.dependencies)
        return {**present(limits), **body}, environment
    if task.python is not None:
        base = task.base or DEFAULT_BASE
        body = {_SCRIPT: _script(task, staged), "environment_key": key}
        return {**body, **present(limits)}, _environment(key, base, task.dependencies)
    body = by_index(_in_platform_words(task.task or {}))
    if task.base is not None:
        body["environment_key"] = key
    return body, _environment(key, task.base, task.dependencies)


def _order(task: Task) -> dict[str, Json]:
    """Source: https://docs.databricks.com/api/workspace/jobs/create (`depends_on`, `run_if`)"""
    upstreams: list[Json] = []
    for name in sorted(task.after):
        key, _, outcome = name.partition(".")
        upstreams.append({"task_key": key, **({"outcome": outcome} if outcome else {})})
    return {
        **({"depends_on": upstreams} if upstreams else {}),
        **({"run_if": task.run_if.upper()} if task.run_if != "all_success" else {}),
    }


def _in_platform_words(value: Any) -> Any:
    """A task of the platform, with references to the parameters of the job as it writes them."""
    if isinstance(value, str):
        return in_platform_words(value)
    if isinstance(value, Mapping):
        return {key: _in_platform_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_platform_words(item) for item in value]
    return value


def run_task(run: StagedLaunch, environment: str = ENVIRONMENT) -> dict[str, Json]:
    """The task that launches a run."""
    task = task_of(run, run_name=run.config.name)
    (deployment,) = task.pop("deployments")  # type: ignore[misc]  # a list of one
    return {
        _TASK: {**task, DEPLOYMENTS: {"0": deployment}},
        "environment_key": environment,
        "max_retries": retries_of(run.config),
        "timeout_seconds": timeout_of(run.config),
    }


def _script(task: Task, staged: Staged | None) -> dict[str, Json]:
    """Arguments are all that the platform gives a Python file. Source:
    https://docs.databricks.com/aws/en/jobs/python-script"""
    folder, code = (staged.folder, staged.code) if staged is not None else ("", None)
    return {
        "python_file": f"{folder}/{RUN_SCRIPT}",
        "parameters": [code, task.python, *map(in_platform_words, task.args)],
    }


def _notebook_task(notebook: Notebook, path: str, environment: str) -> dict[str, Json]:
    parameters = {key: in_platform_words(value) for key, value in notebook.parameters.items()}
    node = None if notebook.type is None else node_of(GpuType.read(notebook.type))
    return present(
        {
            _NOTEBOOK: present({"notebook_path": path, "base_parameters": parameters or None}),
            "compute": {"hardware_accelerator": node} if node is not None else None,
            "environment_key": environment if notebook.base is not None else None,
            "max_retries": notebook.retries or None,
        }
    )


def _notebook_name(path: str) -> str:
    """What a notebook is called in the workspace, which drops the ending of its file. Source:
    `ImportFormat.AUTO` of the SDK."""
    name = posixpath.basename(path)
    return next((name.removesuffix(end) for end in _NOTEBOOK_FILES if name.endswith(end)), name)


def _environment(key: str, base: str | None, dependencies: tuple[str, ...]) -> Environments:
    return {key: environment_spec(base, dependencies)} if base is not None else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlaces:
    """Where a task is launched from, and where its experiment lies: the folder of its command
    and that of the experiment. Empty in a task that launches nothing of the project."""

    commands: str = ""
    experiments: str = ""


def places_in(spec: Mapping[str, Json], key: str) -> TaskPlaces:
    """The places that the spec of a job names.

    Args:
        key: that of a task; `ONE` of a job that launches one run.
    """
    tasks = spec.get(TASKS)
    found: Mapping[str, Any] = tasks if isinstance(tasks, Mapping) else {}
    for task in found.values() if key == ONE else (found.get(key) or {},):
        match task:
            case {"ai_runtime_task": {"deployments": {"0": {"command_path": str(path)}}, **more}}:
                folder = more.get(_EXPERIMENTS)
                return TaskPlaces(commands=posixpath.dirname(path), experiments=str(folder or ""))
            case {"spark_python_task": {"python_file": str(path)}}:
                return TaskPlaces(commands=posixpath.dirname(path))
            case {"notebook_task": {"notebook_path": str(path)}, "notebook": _}:
                return TaskPlaces(commands=posixpath.dirname(path))
    return TaskPlaces()


def with_places(spec: Mapping[str, Json], staged: Mapping[str, Staged]) -> dict[str, Json]:
    """The spec of a job with the places of what it launches."""
    tasks: Any = spec.get(TASKS)
    located: dict[str, Json] = {}
    for key, task in tasks.items():
        there = staged.get(ONE) or staged.get(key)
        located[key] = task if there is None else _located(task, there)
    return {**spec, TASKS: located}


def _located(task: Mapping[str, Any], staged: Staged) -> Json:
    if isinstance(staged, StagedLaunch):
        ai = task.get(_TASK) or {}
        match ai:
            case {"deployments": {"0": {"command_path": str()} as deployment}}:
                launched: Any = run_task(staged)[_TASK]
                (command,) = (item["command_path"] for item in launched[DEPLOYMENTS].values())
                places = {name: launched[name] for name in _PLACES if name in ai}
                deployments = {"0": {**deployment, "command_path": command}}
                return {**task, _TASK: {**ai, **places, DEPLOYMENTS: deployments}}
        return dict(task)
    match task:
        case {"spark_python_task": {"python_file": str(), "parameters": [_, *more]} as script}:
            file, parameters = f"{staged.folder}/{RUN_SCRIPT}", [staged.code, *more]
            return {**task, _SCRIPT: {**script, "python_file": file, "parameters": parameters}}
        case {"notebook_task": {"notebook_path": str(path)} as notebook}:
            path = f"{staged.folder}/{posixpath.basename(path)}"
            return {**task, _NOTEBOOK: {**notebook, "notebook_path": path}}
    return dict(task)
