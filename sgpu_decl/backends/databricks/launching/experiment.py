"""Where in a workspace the MLflow experiment of a run lies. The platform makes the experiment, and
wants its folder to be there, below `/Workspace`."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
"""MLflow's own variable, which names the experiment where `mlflow.experiment` does not."""

LONGEST_NAME = 100
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_WORKSPACE = "/Workspace"
_PRINCIPAL = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """`folder` begins with `/Workspace`. `name` is what the platform makes of the `original`
    name. `names_folder` says that the YAML names the folder, `configured` that it names the
    experiment."""

    folder: str
    original: str
    names_folder: bool
    configured: bool

    @property
    def name(self) -> str:
        return platform_name(self.original)

    @property
    def path(self) -> str:
        """What MLflow calls it: folders of experiments are known without `/Workspace`."""
        return f"{self.folder.removeprefix(_WORKSPACE)}/{self.name}"


def experiment_of(config: "RunConfig", home: str) -> Experiment:
    """Read `mlflow.experiment`, or MLflow's own variable among those of the run: a name, or a path
    with and without `/Workspace` in front, which is below `home` where it is relative; the name of
    the run where nothing is path."""
    configured = config.mlflow.experiment or config.env.variables.get(EXPERIMENT_VARIABLE)
    path = configured or config.name or ""
    directory, _, original = path.rpartition("/")
    original = original or config.name
    if not directory and not path.startswith("/"):
        return Experiment(
            folder=home, original=original, names_folder=False, configured=bool(configured)
        )
    folder = posixpath.normpath(posixpath.join(home, directory or "/"))
    if folder != _WORKSPACE and not folder.startswith(f"{_WORKSPACE}/"):
        folder = posixpath.normpath(f"{_WORKSPACE}/{folder}")
    return Experiment(folder=folder, original=original, names_folder=True, configured=True)


def home_in(config: "RunConfig", folder: str) -> str | None:
    """The `home` with which `experiment_of` gives that folder; None where it does not depend on
    one."""
    configured = config.mlflow.experiment or config.env.variables.get(EXPERIMENT_VARIABLE) or ""
    directory = posixpath.dirname(configured)
    if directory.startswith("/") or configured.startswith("/"):
        return None
    below = f"/{posixpath.normpath(directory)}" if directory else ""
    return folder.removesuffix(below) if folder.endswith(below) else None


def platform_name(text: str) -> str:
    """A name as the platform takes it, for experiments, MLflow runs and tasks (evidence: B)."""
    return _UNFIT.sub("-", text).strip("-")[:LONGEST_NAME] or "run"


def experiment_name(task: "Mapping[str, Any]") -> str | None:
    """The name by which MLflow knows the experiment of an `ai_runtime_task`: MLflow leaves
    `/Workspace` out. `None` where the task does not name it."""
    folder, name = task.get("mlflow_experiment_directory"), task.get("experiment")
    if not folder or not name:
        return str(name) if name else None
    return posixpath.join(str(folder).removeprefix(_WORKSPACE) or "/", str(name))


def experiments_home(user: str, staging: str) -> str:
    """The folder of experiments that name none: that of the user. A service principal need not have
    one, and the platform has no default for it: its experiments lie beside the staging folder.

    Args:
        staging: the staging folder.
    """
    if _PRINCIPAL.fullmatch(user) and staging.startswith(f"{_WORKSPACE}/"):
        return posixpath.dirname(staging)
    return f"{_WORKSPACE}/Users/{user}"
