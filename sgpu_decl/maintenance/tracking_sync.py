"""`sgpu mlflow sync`: checks an attempt and a server, then pushes."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import BackendError, NotFound, SgpuError
from sgpu_decl.runs.table_rows import mlflow_link
from sgpu_decl.tracking.stores.store_protocol import StoreError
from sgpu_decl.tracking.tracker_files import read_record
from sgpu_decl.tracking.tracking_request import available

if TYPE_CHECKING:
    from sgpu_decl.model.attempt import AttemptRef
    from sgpu_decl.runs.project_runs import ProjectRuns
    from sgpu_decl.tracking.sync import SyncResult


def require_mlflow() -> None:
    """Refuse a command that needs MLflow where this interpreter has none."""
    if not available():
        raise SgpuError(
            "MLflow is not installed",
            hint=f"install it with `{extra_command('mlflow')}`",
            code="mlflow_missing",
        )


def sync_tracking(runs: "ProjectRuns", ref: "AttemptRef", server: str | None) -> "SyncResult":
    """Push the MLflow run of an attempt from the local store to a server.

    Args:
        server: its tracking URI; None for the server that was down when the attempt started.

    Raises:
        NotFound: the attempt has no MLflow run, or left nothing.
        SgpuError: it is active, or was tracked by its server, or nothing says which server.
        BackendError: the server does not take it.
    """
    (view,) = runs.describe([ref])
    folder = Path(str(view.links["folder"])) if "folder" in view.links else None
    record = read_record(folder) if folder is not None else None
    link = mlflow_link(view)
    if link is not None and "host" in link:
        raise NotFound(
            f"the MLflow run of `{ref}` is in a store on `{link['host']}`, and not on this machine",
            hint="`sgpu mlflow ui` shows it here; a run that names a tracking server with "
            "`mlflow.tracking_uri` needs no upload",
            code="not_tracked",
        )
    if folder is None or record is None or "run_id" not in record:
        raise NotFound(
            f"`{ref}` has no MLflow run on this machine",
            hint=f"`sgpu show {shlex.quote(str(ref))}` says why",
            code="not_tracked",
        )
    if runs.status(ref).state.active:
        raise SgpuError(
            f"`{ref}` is active, and its MLflow run still grows",
            hint=f"push it once it has ended: `sgpu wait {shlex.quote(str(ref))}`",
            code="active_run",
        )
    missed = record.get("instead_of")
    target = server or (str(missed["tracking_uri"]) if isinstance(missed, dict) else None)
    if target is None or target == record["tracking_uri"]:
        store = mask(str(record["tracking_uri"]))
        raise SgpuError(
            f"`{ref}` was tracked by {store}: there is nothing to push",
            hint="name another server with `--to URI`",
            code="nothing_to_sync",
        )
    require_mlflow()
    from sgpu_decl.tracking.sync import push_run

    try:
        return push_run(folder, target)
    except StoreError as error:
        raise BackendError(
            f"`{ref}` could not be pushed to {mask(target)}: {mask(str(error))}",
            hint="try again once the server is back: nothing is uploaded twice",
            code="tracking_unreachable",
        ) from error
