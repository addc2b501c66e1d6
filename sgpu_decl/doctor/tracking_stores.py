"""The MLflow stores that runs of a project write to."""

import sqlite3
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.distribution import extra_command
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.tracking.store_location import absolute_uri
from sgpu_decl.tracking.stores.choice import store_in_words
from sgpu_decl.tracking.stores.store_protocol import StoreError
from sgpu_decl.tracking.tracker_files import forgotten_runs
from sgpu_decl.tracking.tracking_request import available

_CHECK = "mlflow"
_URI = "MLFLOW_TRACKING_URI"
_PATIENCE = 2.0  # seconds


def check_tracking_stores(
    runs: tuple[LoadedRun, ...], *, home: Path, base: Path, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Args:
    home: the folder of the project's own store.
    base: what relative URIs start from.
    """
    tracked_runs = [run for run in runs if run.config.mlflow.enabled]
    if runs and not tracked_runs:
        yield ok(_CHECK, "no run here is tracked")
        return
    if not available():
        yield warn(
            _CHECK,
            "MLflow is not installed beside sgpu: runs are not tracked",
            f"`{extra_command('mlflow')}`, or `mlflow.enabled: false`",
        )
        return
    yield ok(_CHECK, f"MLflow {version('mlflow')}")
    uris = {
        run.config.mlflow.tracking_uri or run.config.env.variables.get(_URI) or environ.get(_URI)
        for run in tracked_runs
    } or {environ.get(_URI)}
    for uri in sorted(uris, key=str):
        try:
            store = absolute_uri(uri, base=base, home=home)
        except ValueError:  # its text may have the password
            yield fail(
                _CHECK,
                "the tracking URI of MLflow is malformed",
                f"correct `mlflow.tracking_uri` or {_URI}, such as `https://server:5000`",
            )
        else:
            yield _store(store, environ)
    if open_runs := forgotten_runs(home):
        yield warn(
            _CHECK,
            f"MLflow runs that were left open: {open_runs}",
            "the next `sgpu apply`, `status` or `wait` closes them",
        )


def _store(uri: str, environ: Mapping[str, str]) -> Finding:
    text = mask(uri)
    try:
        return ok(_CHECK, f"`{text}`: {store_in_words(uri, environ, _PATIENCE)}")
    except StoreError as error:
        return fail(_CHECK, f"`{text}`: {mask(str(error))}", _way_out(uri, error))


def _way_out(uri: str, error: StoreError) -> str:
    if uri.startswith("http"):
        return "runs use the local store until it works; `sgpu mlflow sync` pushes them later"
    cause = error.__cause__
    # Extended codes carry the primary one in their low byte.
    code = (getattr(cause, "sqlite_errorcode", None) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another program writes to it: find it with `fuser FILE`, and end it if it hangs"
    return "if MLflow did not make this file, move it away; the next run makes a new store"
