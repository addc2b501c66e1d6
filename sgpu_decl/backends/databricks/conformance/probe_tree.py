"""A locked environment with MLflow's client and nothing else, packed for the nodes of a probe."""

import os
from pathlib import Path

from sgpu_decl.backends.databricks.bases import base_named
from sgpu_decl.config.env import Env
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.environments.declared.environment_build import build
from sgpu_decl.environments.declared.resolution import ResolveRequest, resolve
from sgpu_decl.environments.declared.resolution_cache import ResolutionCache
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.environments.interpreters import NoPython, Pythons
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.scratch_folders import scratch_folder

_CLIENT = "mlflow-skinny"


class NoTree(Exception):
    """The environment cannot be made on this machine: a finding, no error of the probe."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or "it takes uv, a package index, and the Python of the base here"


def pack_tree(base: str, folder: Path) -> str:
    """Resolve and build the environment as `env.dependencies` with `env.lock` are, in folders that
    are deleted, and pack it into `folder`; return the digest of its manifest.

    Args:
        base: the base environment that says which Python it is for.

    Raises:
        NoTree: uv, the interpreter or the packages cannot be had.
    """
    entry = base_named(base)
    version = entry.environment.python if entry is not None else None
    minor = None if version is None else ".".join(version.split(".")[:2])
    with scratch_folder("doctor") as here:
        python = Pythons(os.environ).find(minor, here)
        if isinstance(python, NoPython):
            raise NoTree(python.error.message, python.error.hint)
        request = ResolveRequest(
            block=Env(dependencies=(_CLIENT,)),
            python=python,
            folder=Path.cwd(),  # whose settings name the index
            environ=os.environ,
            places={},
        )
        lock, findings = resolve(request, ResolutionCache(here / "resolutions"), Quiet())
        if lock is None:
            errors = [item for item in findings if item.severity is Severity.ERROR]
            raise NoTree(errors[0].summary, errors[0].hint)
        store = EnvironmentStore(here / "environments")
        try:
            built = build(lock, python, store, Quiet(), folder=request.folder, environ=os.environ)
        except SgpuError as error:
            raise NoTree(error.message, error.hint) from error
        send(built.manifest, store.objects, FolderPlace(folder), str(folder), Quiet())
    return built.manifest.digest
