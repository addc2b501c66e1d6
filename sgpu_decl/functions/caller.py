"""The caller: its project, its own MLflow store, and its active run."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound
from sgpu_decl.functions.origin import program_file
from sgpu_decl.planning.location import Location, current_folder
from sgpu_decl.tracking.store_location import plain_folder

if TYPE_CHECKING:
    from types import ModuleType

_PARENT = "mlflow.parentRunId"  # mlflow.utils.mlflow_tags.MLFLOW_PARENT_RUN_ID
_DEFAULT = "Default"  # Experiment.DEFAULT_EXPERIMENT_NAME of mlflow.entities
_SQLITE_SINCE = (3, 7)  # before that a process without a tracking URI stores in files


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """`experiment` is the name of the one that the caller works in, `explicit` whether the caller
    chose it; `nested` says that a run of it is active, whose id is in `tags`. `store` is the
    caller's tracking URI, None where MLflow is not installed."""

    experiment: str | None = None
    explicit: bool = False
    nested: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None


def parent() -> Parent:
    """Look at the caller's MLflow, which is not imported for it."""
    mlflow = sys.modules.get("mlflow")
    store = _store(mlflow)
    active = mlflow.active_run() if mlflow is not None else None
    if mlflow is not None and active is not None:
        experiment = mlflow.get_experiment(active.info.experiment_id)
        return Parent(
            experiment=str(experiment.name),
            explicit=True,
            nested=True,
            tags={_PARENT: str(active.info.run_id)},
            store=store,
        )
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    identity = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if mlflow is not None and not name and identity:
        name = str(mlflow.get_experiment(identity).name)
    return Parent(experiment=name or _DEFAULT, explicit=bool(name), store=store)


def _store(mlflow: "ModuleType | None") -> str | None:
    """The caller's tracking URI, or the one that MLflow will have when it is imported."""
    if mlflow is not None:
        return str(mlflow.get_tracking_uri())
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    try:
        release = tuple(int(part) for part in version("mlflow").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return None
    files = Path.cwd() / "mlruns"
    if release < _SQLITE_SINCE or any(files.glob("[0-9]*/meta.yaml")):
        return files.as_uri()

    return f"sqlite:///{plain_folder(Path.cwd()) / 'mlflow.db'}"


def call_location(*, project: str | Path | None = None, target: str | None = None) -> "Location":
    """The project and target of this program: the arguments, else the project that `SGPU_PROJECT`
    names, else that of the script or notebook.

    Raises:
        NotFound: the current folder does not exist any more, or `SGPU_PROJECT` names none.
    """
    current_folder()
    folder_variable = os.environ.get("SGPU_PROJECT") or None
    if project is None and folder_variable is not None and not os.path.isdir(folder_variable):
        raise NotFound(
            f"`SGPU_PROJECT` names the folder `{folder_variable}`, which does not exist",
            hint="name another, or unset it: then it is the project that your program lies in",
        )
    folder = project or folder_variable
    return Location(
        file=program_file(),
        project=folder,
        target=target,
    )
