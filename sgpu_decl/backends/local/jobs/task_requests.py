"""What the tasks of a launch start: attempts of this machine."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.job_backend import AppliedJob
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.config.job_tasks import with_parameters
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.job import SCRIPT, TASKS
from sgpu_decl.model.jsonable import Json, Spec


def task_requests(
    applied: AppliedJob, number: int, parameters: Mapping[str, str], only: Sequence[str], token: str
) -> dict[str, LaunchRequest]:
    """The attempts of a launch by the names of their tasks. A Python file runs as a group of one
    rank.

    Args:
        number: that of the launch, which its attempts have too.
        parameters: those of the job, as the launch has them.
        only: the tasks that run; all where none is named.
        token: that of the launch; each attempt gets its own.
    """
    settings: Any = applied.spec.get(TASKS) or {}
    requests = {}
    for task, request in applied.requests.items():
        record, name = request.record, task or request.ref.address.name
        if only and task not in only:
            continue
        inputs = record.inputs
        if request.of_file:
            given = {**inputs.spec.fields, **settings[task]}
            inputs = replace(inputs, spec=_script_spec(name, given, parameters))
        marked = hashlib.sha256(f"{token} {name}".encode()).hexdigest()
        ref = AttemptRef(record.ref.address, number)
        requests[name] = replace(
            request, record=replace(record, ref=ref, inputs=inputs, token=f"sgpu-{marked[:48]}")
        )
    return requests


def _script_spec(name: str, task: Mapping[str, Any], parameters: Mapping[str, str]) -> Spec:
    """A task with a Python file as a run. It has no MLflow run, as on the platform."""
    script = task[SCRIPT]
    spec: dict[str, Json] = {
        "name": name,
        "gpus": 1,
        "type": "CPU",
        "entrypoint": script["path"],
        "args": [with_parameters(text, parameters) for text in script.get("args", ())],
        "mlflow": {"enabled": False},
        "backend": task.get("backend", {}),
    }
    if task.get("retries"):
        spec["retry"] = {"max": task["retries"], "on": ["infra", "error"]}
    if task.get("timeout"):
        spec["timeout"] = task["timeout"]
    return Spec.of(spec)


def tasks_in(
    applied: AppliedJob, requests: Mapping[str, LaunchRequest], layout: AttemptLayout
) -> dict[str, dict[str, Json]]:
    """What a walker is told of the tasks of a launch, by their names: those `after` which each
    comes, `if` it runs then, and the attempt that it starts."""
    settings: Any = applied.spec.get(TASKS) or {}
    tasks: dict[str, dict[str, Json]] = {}
    for name, request in requests.items():
        task = settings.get(name, {})
        tasks[name] = {
            "after": [one for one in task.get("after", ()) if one in requests],
            "if": task.get("if", "all_success"),
            "run": SCRIPT not in task,
            "address": str(request.ref.address),
            "folder": str(layout.attempt(request.ref).relative_to(layout.state_dir)),
            "token": request.record.token,
        }
    return tasks
