"""What the workspace itself does in MLflow: the run of each attempt, and where its artifacts lie.

Experiments of all tenants are kept by one server. Their names, which are workspace paths, carry the
tenant's key in front there, and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sgpu_decl.testing.workspace.mlflow_program import MANAGED
from sgpu_decl.testing.workspace.mlflow_server import MlflowServer
from sgpu_decl.testing.workspace.routes import ApiError
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.trees import located, normal
from sgpu_decl.testing.workspace.volumes import volume_file

__all__ = ["MANAGED", "Tracked", "Tracking", "kept_name", "name_prefix"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """An MLflow run, and the folder of its artifacts on disk."""

    experiment_id: str
    run_id: str
    artifacts: Path


class Tracking:
    """Makes and ends MLflow runs for a workspace."""

    def __init__(self, server: MlflowServer) -> None:
        self.server = server

    def begin(
        self,
        tenant: Tenant,
        experiment: str,
        *,
        name: str | None,
        tags: Mapping[str, str],
        artifact_location: str | None,
        started_ms: int,
    ) -> Tracked:
        """Make a run in an experiment, named by its workspace path, which is made where it is
        missing. Raises ApiError."""
        if artifact_location is not None:
            self.on_disk(tenant, artifact_location)
        experiment_id = self._experiment(tenant, experiment, artifact_location)
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        asked: dict[str, object] = {
            "experiment_id": experiment_id, "run_name": name, "tags": listed,
            "user_id": tenant.user_name, "start_time": started_ms,
        }  # fmt: skip
        info = self.server.ask("POST", "runs/create", asked)["run"]["info"]
        return Tracked(
            experiment_id=experiment_id,
            run_id=str(info["run_id"]),
            artifacts=self.on_disk(tenant, str(info["artifact_uri"])),
        )

    def end(self, run_id: str, *, status: str, ended_ms: int) -> None:
        """Give a run its status: FINISHED, FAILED or KILLED. Raises ApiError."""
        self.server.ask(
            "POST", "runs/update", {"run_id": run_id, "status": status, "end_time": ended_ms}
        )

    def artifact_uri(self, run_id: str) -> str:
        """Where the artifacts of a run lie. Raises ApiError, 404 for an unknown run."""
        found = self.server.ask("GET", f"runs/get?run_id={quote(run_id)}", {})
        return str(found["run"]["info"]["artifact_uri"])

    def model_uri(self, model_id: str) -> str:
        """Where the artifacts of a logged model lie. Raises ApiError, 404 for an unknown one."""
        found = self.server.ask("GET", f"logged-models/{quote(model_id, safe='')}", {})
        return str(found["model"]["info"]["artifact_uri"])

    def on_disk(self, tenant: Tenant, uri: str) -> Path:
        """The folder behind an artifact URI. Raises ApiError, 400, for one that is kept
        elsewhere."""
        if uri.startswith(f"{MANAGED}/"):
            return located(self.server.artifacts, normal(uri.removeprefix(MANAGED)))
        if uri.startswith("dbfs:/Volumes/"):
            return volume_file(tenant, uri.removeprefix("dbfs:"))
        message = f"artifacts at '{uri}' are not kept by this workspace"
        raise ApiError(400, "INVALID_PARAMETER_VALUE", message)

    def _experiment(self, tenant: Tenant, path: str, artifact_location: str | None) -> str:
        name = kept_name(tenant, path)
        asked = {"name": name}
        if artifact_location is not None:
            asked["artifact_location"] = artifact_location
        try:
            return str(self.server.ask("POST", "experiments/create", asked)["experiment_id"])
        except ApiError as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        found = self.server.ask("GET", f"experiments/get-by-name?experiment_name={quote(name)}", {})
        return str(found["experiment"]["experiment_id"])


def name_prefix(tenant: Tenant) -> str:
    """What the names of a tenant's experiments begin with in the one server of all."""
    return f"{tenant.key}:"


def kept_name(tenant: Tenant, name: str) -> str:
    """An experiment's name there. `/Workspace/Users/a/x` and `/Users/a/x` are the same one."""
    return name_prefix(tenant) + name.removeprefix("/Workspace")
