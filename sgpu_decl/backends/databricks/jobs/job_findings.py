"""What a plan says of a declared job: its notebook as the workspace shows it, and words of the
platform that sgpu does not know. Nothing is executed."""

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import without_refusals
from sgpu_decl.backends.databricks.bases import all_bases
from sgpu_decl.backends.databricks.planning.catalog import kind_of
from sgpu_decl.backends.databricks.planning.databricks_config_rules import unknown_levels
from sgpu_decl.config.job import Job, Notebook
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.environments.package_lists.base_environments import unlisted_base

_NOTEBOOK = "NOTEBOOK"


def job_findings(connection: Connection, job: Job) -> Iterator[Diagnostic]:
    """The findings about a job.

    Raises:
        BackendError: the workspace does not answer.
    """
    for finding in unknown_levels(job.permissions, {}):
        yield replace(finding, path=("permissions",))
    notebook = job.notebook
    if notebook is None:
        return
    if notebook.base is not None and notebook.base not in {base.name for base in all_bases()}:
        finding = unlisted_base(notebook.base, None, all_bases())
        yield replace(finding, path=("notebook", "base"))
    with without_refusals():  # who may not look does not know that it is missing
        found = _notebook(connection, notebook)
        if found is not None:
            yield replace(found, path=("notebook", "path"))


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
