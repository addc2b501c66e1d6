"""What a plan says of a declared job beside its changes: of its tasks, its notebooks in the
workspace, and whom it runs as. Nothing is executed to find out."""

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import without_refusals
from sgpu_decl.backends.databricks.bases import all_bases
from sgpu_decl.backends.databricks.jobs.task_fields import task_findings
from sgpu_decl.backends.databricks.planning.catalog import (
    SERVICE_PRINCIPALS,
    USERS,
    has_principal,
    kind_of,
)
from sgpu_decl.backends.databricks.planning.databricks_config_rules import unknown_levels
from sgpu_decl.config.job import Job, RunAs
from sgpu_decl.config.job_tasks import Notebook
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.environments.package_lists.base_environments import unlisted_base
from sgpu_decl.model.job import TASKS

_NOTEBOOK = "NOTEBOOK"


def job_findings(connection: Connection, job: Job) -> Iterator[Diagnostic]:
    """The findings about a job.

    Raises:
        BackendError: the workspace does not answer.
    """
    yield from settings_findings(job)
    if job.run_as is not None:
        yield from _run_as_findings(connection, job.run_as)
    for key, task in job.tasks.items():
        if task.notebook is not None and task.notebook.file is None:
            yield from _notebook_findings(connection, task.notebook, (TASKS, key, "notebook"))
    if job.notebook is not None:
        yield from _notebook_findings(connection, job.notebook, ("notebook",))


def _run_as_findings(connection: Connection, run_as: RunAs) -> Iterator[Diagnostic]:
    """A warning: a user may not see all others."""
    kind, name = (
        (USERS, run_as.user) if run_as.user is not None
        else (SERVICE_PRINCIPALS, run_as.service_principal)
    )  # fmt: skip
    with without_refusals():
        if has_principal(connection, kind, name or "") is False:
            yield Diagnostic(
                code="unknown_principal",
                severity=Severity.WARNING,
                summary=f"`{connection.host}` shows no {kind.noun} `{name}`: `apply` would fail",
                hint="write the application id of a service principal, and the mail address of a "
                "user; or ask an admin of the workspace to add them",
                path=("run_as",),
            )


def settings_findings(job: Job) -> Iterator[Diagnostic]:
    """Those for which the workspace is not asked."""
    for finding in unknown_levels(job.permissions, {}):
        yield replace(finding, path=("permissions",))
    for key, task in job.tasks.items():
        for finding in task_findings(task):
            yield replace(finding, path=(TASKS, key, *finding.path))
        if task.notebook is not None:
            yield from _base_findings(task.notebook, (TASKS, key, "notebook"))
    if job.notebook is not None:
        yield from _base_findings(job.notebook, ("notebook",))


def _base_findings(notebook: Notebook, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    if notebook.base is not None and notebook.base not in {base.name for base in all_bases()}:
        finding = unlisted_base(notebook.base, None, all_bases())
        yield replace(finding, path=(*path, "base"))


def _notebook_findings(
    connection: Connection, notebook: Notebook, path: tuple[str, ...]
) -> Iterator[Diagnostic]:
    with without_refusals():  # who may not look does not know that it is missing
        found = _notebook(connection, notebook)
        if found is not None:
            yield replace(found, path=(*path, "path"))


def _notebook(connection: Connection, notebook: Notebook) -> Diagnostic | None:
    path = notebook.path
    kind = kind_of(connection, path)
    if kind == _NOTEBOOK:
        return None
    warning = Diagnostic(
        code="notebook_missing",
        severity=Severity.WARNING,
        summary=f"`{connection.host}` shows no notebook `{path}` to `{connection.user}`",
        hint="correct the path, or put the notebook there: each launch of the job would fail. It "
        "runs as the owner of the job, who may see more",
    )
    if kind is not None:
        return replace(
            warning,
            summary=f"`{path}` is no notebook in `{connection.host}` but a {kind.lower()}",
            hint="name a notebook: the path of one has no extension"
            if kind == "FILE"
            else "name a notebook in it",
        )
    folder, _, name = path.rpartition("/")
    answer = connection.find(f"looking into `{folder}`", "/api/2.0/workspace/list", path=folder)
    if answer is None:
        return replace(warning, summary=f"{warning.summary}, nor the folder `{folder}`")
    objects = answer.get("objects") or ()
    names = [posixpath.basename(str(one["path"])) for one in objects if _is_notebook(one)]
    near = nearest(name, names)
    return replace(warning, hint=f"did you mean `{folder}/{near}`?") if near else warning


def _is_notebook(found: object) -> bool:
    return isinstance(found, dict) and found.get("object_type") == _NOTEBOOK
