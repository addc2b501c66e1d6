"""From a job's config to its document on this machine, which has the words of the YAML; and what a
plan says of what this machine does not do."""

from collections.abc import Iterator
from getpass import getuser

from sgpu_decl.backends.job_backend import JobDescription
from sgpu_decl.backends.local.kind import UNKEPT
from sgpu_decl.config.job import Job
from sgpu_decl.config.job_tasks import Task, other_references
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.job import NOTEBOOK, SCRIPT, TASKS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import USER, short_name

_WAY_OUT = (
    "run the job in `sgpu dev workspace`, which imitates a workspace on this machine; or declare a "
    "job without the task for this target, with `targets: [NAME]`"
)


def local_document(job: Job, name: str) -> JobDescription:
    """The document of a declared job.

    Args:
        name: its key in the file.
    """
    title = job.name or name
    if USER in title:
        title = title.replace(USER, short_name(getuser()))
    document: dict[str, Json] = {
        "name": title,
        "description": job.description,
        "tags": dict(job.tags),
        "parameters": dict(job.parameters),
        "timeout": str(job.timeout) if job.timeout is not None else None,
        "max_concurrent_runs": job.max_concurrent_runs,
        "on_overlap": "queue" if job.queues else "skip",
        TASKS: {key: _order(task) for key, task in job.tasks.items()},
    }
    document = {key: item for key, item in document.items() if item not in (None, {})}
    origins = {key: key for key in document}
    if job.queue is not None:
        origins["on_overlap"] = "queue"
    return JobDescription(title=title, document=document, origins=origins)


def _order(task: Task) -> dict[str, Json]:
    given: dict[str, Json] = {
        "after": sorted(task.after),
        "if": task.run_if if task.run_if != "all_success" else None,
        "retries": task.retries,
        "timeout": str(task.timeout) if task.timeout is not None else None,
    }
    return {key: item for key, item in given.items() if item}


def local_findings(job: Job) -> Iterator[Diagnostic]:
    """What this machine cannot do, and what it does not keep."""
    if job.notebook is not None:
        yield _elsewhere("this machine executes no notebooks", (NOTEBOOK,))
    for key, task in job.tasks.items():
        path = (TASKS, key, task.kind)
        if task.kind == NOTEBOOK:
            yield _elsewhere(f"this machine executes no notebooks, and `{key}` is one", path)
        elif task.kind == "task":
            yield _elsewhere(f"this machine has no such task as `{key}`: its platform does", path)
        elif task.kind == SCRIPT:
            yield from _script_findings(key, task)
    unkept = [field for field in UNKEPT if field in job.model_fields_set and getattr(job, field)]
    if unkept:
        yield Diagnostic(
            code="job_settings_unkept",
            severity=Severity.INFO,
            summary=f"this machine keeps no {_listed(unkept)} of a job: only `sgpu start` launches "
            "it, as the user who does",
            path=(unkept[0],),
        )


def _script_findings(key: str, task: Task) -> Iterator[Diagnostic]:
    if task.dependencies:
        yield Diagnostic(
            code="task_elsewhere",
            summary=f"this machine installs no `dependencies` for the Python file of `{key}`",
            hint="make it a run with `gpus: 1`, `type: CPU` and `env: {dependencies: […]}`",
            path=(TASKS, key, "dependencies"),
        )
    for reference in other_references(task.args):
        yield Diagnostic(
            code="task_elsewhere",
            summary=f"this machine does not fill in `{reference}`: only parameters of the job",
            hint="write `${job.parameters.NAME}`, and give the value with `--param NAME=VALUE`",
            path=(TASKS, key, "args"),
        )


def _elsewhere(summary: str, path: tuple[str, ...]) -> Diagnostic:
    return Diagnostic(code="task_elsewhere", summary=summary, hint=_WAY_OUT, path=path)


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
