"""New SQLite stores, with MLflow's own tables.

MLflow needs seconds to make the tables, because it runs all its migrations. So MLflow makes one
empty store for each of its versions in the user's cache, and the store of a project is a copy of
it."""

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.tracking.stores.sqlite import ARTIFACTS, revision
from sgpu_decl.tracking.stores.store_protocol import StoreError

_MAKE = """\
import sys
from mlflow import MlflowClient
MlflowClient(tracking_uri="sqlite:///" + sys.argv[1]).get_experiment("0")
"""
_LIMIT = 300.0  # seconds: a machine that is loaded makes the tables slowly


def make_store(path: Path, say: Callable[[str], None]) -> None:
    """Make an empty MLflow store if there is none. Several processes may do it at once.

    Args:
        say: gets a text for each step that takes a while, to follow "waiting for".

    Raises:
        StoreError: it cannot be made, or something else lies there.
    """
    try:
        if path.exists() and path.stat().st_size:
            return
        say(f"the store {path} to be made")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if path.exists() and path.stat().st_size:
                return
            part = _part(path)
            try:
                shutil.copyfile(_empty_store(say), part)
                part.chmod(0o600)
                _set_artifact_root(part, path.parent / ARTIFACTS)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"the store {path} cannot be made: {error}") from error


def _part(path: Path) -> Path:
    """Where a store is made until it is whole, without those of makers that were killed. The caller
    holds the lock."""
    for left in path.parent.glob(f".{path.name}.*.part"):
        left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _empty_store(say: Callable[[str], None]) -> Path:
    """The empty store of the MLflow that is installed, made where the cache lacks it."""
    try:
        name = f"{version('mlflow')}.db"
    except PackageNotFoundError as error:
        raise StoreError(
            f"`{sys.executable}` has no MLflow, which makes the tables of a store: install it "
            "there, or in the environment of the run; or name a tracking server"
        ) from error
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cached = Path(caches) / "sgpu" / "mlflow" / name  # nodes have no `platformdirs`
    if cached.exists():
        return cached
    private_folder(cached.parent)
    with _locked(cached):
        if not cached.exists():
            say("MLflow to make the tables of a store, once on this machine")
            part = _part(cached)
            try:
                _have_mlflow_make(part)
                part.replace(cached)
            finally:
                part.unlink(missing_ok=True)
    return cached


def _have_mlflow_make(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, str(path)],
        cwd=path.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if done.returncode or revision(path) is None:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise StoreError(f"MLflow could not make the tables of its store: {last}")


def _set_artifact_root(part: Path, artifacts: Path) -> None:
    """Set the artifact folder of the default experiment, which every store has."""
    with closing(sqlite3.connect(part)) as db, db:
        db.execute(
            "UPDATE experiments SET artifact_location = ? || '/' || experiment_id",
            (str(artifacts),),
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock beside `path`, which is about to be made."""
    with path.with_name(path.name + ".lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
