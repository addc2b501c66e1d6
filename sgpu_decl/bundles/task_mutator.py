"""Tasks of the bundle's own jobs that launch a run of the project: `sgpu_task` makes one in Python,
`sgpu_tasks` fills them.

A task of a bundle has no tags, and the CLI takes no field that it does not know. So its
`description`, which people see in the workspace, names the run: `sgpu: NAME`, alone or as the first
line. Source: `Task` of `databricks.bundles.jobs`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from databricks.bundles.core import Bundle, job_mutator
from databricks.bundles.jobs import AiRuntimeTask, ForEachTask, Job, JobEnvironment, Task

from sgpu_decl.bundles.bundle_folder import KEEP
from sgpu_decl.bundles.bundle_program import (
    bundle_config,
    findings_of,
    project_of,
    sync_findings,
)
from sgpu_decl.bundles.bundled_jobs import bundled_jobs
from sgpu_decl.config.job import Job as JobConfig
from sgpu_decl.config.loaded import Loaded, LoadedJob
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, in_order
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.model.address import NAME, Address, Kind
from sgpu_decl.model.jsonable import Spec

_MARK = re.compile(rf"sgpu:[ \t]*({NAME})[ \t]*(?:\n|$)")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_OURS = ("ai_runtime_task", "environment_key", "max_retries", "timeout_seconds")
_OF_THE_RUN = {
    "environment_key": "`env` of the run says which packages there are",
    "max_retries": "write `retry` in the run",
    "retry_on_timeout": "write `retry` in the run",
    "timeout_seconds": "write `timeout` in the run",
}
_LONGEST = 60


def sgpu_task(run: str, *, task_key: str | None = None, **more: Any) -> Task:
    """A task of a job in Python that launches a run of `sgpu.yml`. The mutator `sgpu_tasks` fills
    it, so the bundle has to name that.

    Args:
        run: the name of the run.
        task_key: the key of the task; that of the run unless given.
        more: other fields of the task, as `Task` has them, such as `depends_on`.
    """
    fields_of_task: Any = {**more, "task_key": task_key or run, "description": f"sgpu: {run}"}
    return Task.from_dict(fields_of_task)


class _Refused(Exception):
    """What a mutator raises: it can report nothing else. The library shows the traceback of an
    exception, and this one has none, since it is about files of the user. Source:
    `Diagnostics.from_exception` of `databricks.bundles.core`."""

    __module__ = "builtins"  # so that the library shows the bare name

    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        return None


_Refused.__name__ = _Refused.__qualname__ = "sgpu"


@job_mutator
def sgpu_tasks(bundle: Bundle, job: Job) -> Job:
    """Fill the tasks of a job that launch a run, for `python.mutators` of the bundle. All else of
    the job stays, but `max_concurrent_runs`: launches of one job share a folder on the platform, so
    they never overlap.
    """
    try:
        return _filled(bundle, job)
    except SgpuError as error:
        errors = [str(one) for one in findings_of(error) if one.severity is Severity.ERROR]
        raise _Refused("\n".join(errors)) from None


def _filled(bundle: Bundle, job: Job) -> Job:
    tasks = [one for one in _listed(job.tasks) if isinstance(one, Task)]
    runs = {str(one.task_key): run for one in tasks if (run := _run_of(one)) is not None}
    _refuse(_repeated(tasks))
    if not runs:
        return job
    config = bundle_config()
    marked = {str(one.task_key): one for one in tasks if str(one.task_key) in runs}
    _refuse((*sync_findings(config), *_conflicts(job, marked, config)))
    name = _NO_NAME.sub("-", str(job.name or "")).strip("-_")[:_LONGEST] or "job"
    found = bundled_jobs(
        project_of(bundle),
        lambda loaded: (_job_of(loaded, name, runs),),
        name=f"tasks of {job.name}",
        keep=KEEP,
    )
    _refuse(one for one in found.findings if one.severity is Severity.ERROR)
    (ours,) = found.jobs
    made = {one["task_key"]: one for one in _listed(ours.resource.get("tasks"))}
    environments = _listed(ours.resource.get("environments"))
    return replace(
        job,
        tasks=[
            _with(one, made[str(one.task_key)])
            if isinstance(one, Task) and one.task_key in runs
            else one
            for one in _listed(job.tasks)
        ],
        environments=[
            *_listed(job.environments),
            *(JobEnvironment.from_dict(one) for one in environments),
        ],
        max_concurrent_runs=1,
    )


def _listed(value: Any) -> list[Any]:
    """A list of a resource; empty for none, and for a variable that has one."""
    return value if isinstance(value, list) else []


def _run_of(task: Task) -> str | None:
    description = task.description
    found = _MARK.match(description) if isinstance(description, str) else None
    return found[1] if found is not None else None


def _with(task: Task, made: Mapping[str, Any]) -> Task:
    values = {name: made[name] for name in _OURS}
    return replace(task, **{**values, "ai_runtime_task": AiRuntimeTask.from_dict(values[_OURS[0]])})


def _job_of(loaded: Loaded, name: str, runs: Mapping[str, str]) -> LoadedJob:
    """The job of a bundle as one of the file: its tasks that launch runs. Raises InvalidInput."""
    places = {run.address.name: run.places for run in loaded.runs}
    for task, run in runs.items():
        if run not in places:
            near = nearest(run, places)
            known = ", ".join(f"`{one}`" for one in list(places)[:5])
            _refuse(
                [
                    Diagnostic(
                        code="unknown_run",
                        summary=f"the task `{task}` has the description `sgpu: {run}`, and "
                        f"`{loaded.file}` declares no run `{run}`",
                        hint=f"did you mean `sgpu: {near}`?"
                        if near
                        else f"it declares {known or 'none'}",
                    )
                ]
            )
    _refuse(
        Diagnostic(
            code="run_of_matrix",
            summary=f"`{run.address.name}` has a matrix, and a task launches one run",
            place=run.places.get("matrix"),
            hint="declare a run without a matrix for the task",
        )
        for run in loaded.runs
        if run.address.key and run.address.name in runs.values()
    )
    place = next(iter(places[next(iter(runs.values()))].values()))
    return LoadedJob(
        address=Address(Kind.JOB, name),
        config=JobConfig.model_validate(
            {"tasks": {task: {"run": run} for task, run in runs.items()}}
        ),
        places={},
        place=place,
        spec=Spec.of({}),
    )


def _repeated(tasks: Iterable[Task]) -> Iterator[Diagnostic]:
    for task in tasks:
        inner = task.for_each_task.task if isinstance(task.for_each_task, ForEachTask) else None
        if isinstance(inner, Task) and _run_of(inner) is not None:
            yield Diagnostic(
                code="bundle_task",
                summary=f"the task `{task.task_key}` launches a run of sgpu for each of several "
                "inputs, and a run cannot read its input",
                hint="give each launch a task of its own, with a run of its own",
            )


def _conflicts(job: Job, tasks: Mapping[str, Task], config: Mapping[str, Any]) -> list[Diagnostic]:
    found = []

    def refuse(summary: str, hint: str) -> None:
        found.append(Diagnostic(code="bundle_task", summary=summary, hint=hint))

    known = {str(one.environment_key) for one in _listed(job.environments)}
    for key, task in tasks.items():
        for field in fields(task):
            value = getattr(task, field.name)
            if value in (None, [], {}):
                continue
            if field.name.endswith("_task") or field.name in ("compute", *_OF_THE_RUN):
                refuse(
                    f"the task `{key}` launches a run of sgpu, and has `{field.name}` too",
                    _OF_THE_RUN.get(field.name, "leave it out: sgpu fills it"),
                )
        if key in known:
            refuse(
                f"sgpu adds the environment `{key}` for the task `{key}`, and the job has an "
                "environment with this name already",
                "rename the task, or that environment",
            )
    jobs = ((config.get("resources") or {}).get("jobs") or {}).values()
    if sum(1 for one in jobs if isinstance(one, dict) and one.get("name") == job.name) > 1:
        refuse(
            f"the bundle has several jobs with the name `{job.name}`: their launches would share "
            "one folder for results",
            "give each job a name of its own",
        )
    return found


def _refuse(findings: Iterable[Diagnostic]) -> None:
    listed = in_order(findings)
    if listed:
        raise InvalidInput(listed[0].summary, diagnostics=listed)
