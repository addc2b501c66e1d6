"""Files of the repository that are tasks of jobs: what they take along, and whether they are there
and are what they should be."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.config.job_tasks import Task
from sgpu_decl.config.loaded import LoadedJob, LoadedRun
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.model.address import Address
from sgpu_decl.model.job import NOTEBOOK, SCRIPT, STAGED
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.planner.plan_checks import place_of

_HEADER = b"# Databricks notebook source"
"""How a Python file begins that is a notebook. Source:
https://docs.databricks.com/aws/en/notebooks/notebook-format"""
_SEEN = 200


def file_of(task: Task) -> str | None:
    """The path of the file of the repository that a task executes, relative to the project."""
    if task.python is not None:
        return task.python
    return task.notebook.file if task.notebook is not None else None


def script_run(job: LoadedJob, key: str, task: Task, backend: str) -> LoadedRun:
    """A task with a Python file as a run, whose code is that of the project: so its code is read
    and compared as that of runs."""
    config = RunConfig.model_validate(
        {"name": key, "gpus": 1, "type": "CPU", "entrypoint": task.python, "backend": backend}
    )
    return LoadedRun(
        address=_address(job, key),
        config=config,
        places={"entrypoint": place_of(job.places, f"tasks.{key}.{SCRIPT}") or job.place},
        spec=script_spec(task),
    )


def script_spec(task: Task) -> Spec:
    """What is ours in the spec of a task with a Python file."""
    given: dict[str, Json] = {"path": task.python}
    if task.args:
        given["args"] = list(task.args)
    return Spec.of({SCRIPT: given})


def notebook_spec(task: Task, folder: Path) -> Spec:
    """The same of a task with a notebook of the repository. One that is not there has no digest.

    Args:
        folder: what its path starts from.
    """
    notebook = task.notebook
    assert notebook is not None  # noqa: S101  as the caller has seen
    given: dict[str, Json] = {"path": notebook.path}
    if notebook.parameters:
        given["parameters"] = dict(notebook.parameters)
    return Spec.of(
        {NOTEBOOK: given, STAGED: {NOTEBOOK: notebook_digest(folder / notebook.path) or ""}}
    )


def notebook_digest(path: Path) -> str | None:
    """The digest of a notebook's bytes; None where they cannot be read."""
    try:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError:
        return None


def file_findings(job: LoadedJob, key: str, task: Task, folder: Path) -> Iterator[Diagnostic]:
    """What is wrong with the file of a task."""
    name = file_of(task)
    if name is None:
        return
    path = folder / name
    kind = task.kind
    place = place_of(job.places, f"tasks.{key}.{kind}.path")
    place = place or place_of(job.places, f"tasks.{key}.{kind}") or job.place
    what = "Python file" if task.python is not None else "notebook"
    if not path.is_file():
        beside = [
            (path.parent / one.name).relative_to(folder).as_posix()
            for one in sorted(path.parent.glob(f"*{path.suffix}"))[:_SEEN]
        ] if path.parent.is_dir() else []  # fmt: skip
        near = nearest(name, beside)
        yield Diagnostic(
            code="task_file_missing",
            summary=f"there is no {what} `{name}`",
            place=place,
            address=str(job.address),
            hint=f"did you mean `{near}`?" if near else "it is a path from the folder of this file",
        )
    elif task.python is None and (why := _no_notebook(path)) is not None:
        yield Diagnostic(
            code="no_notebook",
            summary=f"`{name}` is no notebook: {why}",
            place=place,
            address=str(job.address),
            hint="name a notebook of Jupyter, or a Python file that begins with "
            f"`{_HEADER.decode()}`"
            + (f"; for any other Python file write `python: {name}`" * (path.suffix == ".py")),
        )


def _no_notebook(path: Path) -> str | None:
    """Why a file is no notebook, if it is none."""
    content = path.read_bytes()
    if path.suffix == ".py":
        return None if content.startswith(_HEADER) else "it is a Python file without the mark"
    try:
        parsed = json.loads(content)
    except ValueError:
        return "it is not JSON"
    cells = parsed.get("cells") if isinstance(parsed, dict) else None
    return None if isinstance(cells, list) else "it has no list of cells"


def _address(job: LoadedJob, key: str) -> Address:
    return Address(job.address.kind, job.address.name, key)
