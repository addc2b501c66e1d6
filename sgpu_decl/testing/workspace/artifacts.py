"""Artifacts of MLflow runs and models: lists, and links to read and write single files.

They lie where the platform has them, below `dbfs:/databricks/mlflow-tracking`, which no other API
shows. MLflow's client asks for links there (`DatabricksArtifactRepository`); what lies in a volume
it reads and writes as files of the volume, and gets no links to (evidence: A18).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.mlflow_names import MANAGED, Tracking
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
    missing,
)
from sgpu_decl.testing.workspace.signed_links import Signer
from sgpu_decl.testing.workspace.trees import file_answer, located, normal
from sgpu_decl.testing.workspace.volume_files import check_writable

__all__ = ["ArtifactsApi"]

_RUN = "/api/2.0/mlflow/artifacts"
_MODEL = "/api/2.0/mlflow/logged-models/{model_id}/artifacts"
# MLflow's client sends files of any size to this kind in one request.
_KIND = "GCP_SIGNED_URL"


@dataclass(frozen=True, slots=True)
class ArtifactsApi:
    """The handlers, and the key of the links that they give out."""

    tracking: Tracking
    signer: Signer

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API."""
        signed = "/artifacts/{action}/{tenant}/{signature}/{path...}"
        return (
            Route("GET", f"{_RUN}/list", self.list_of_run),
            Route("GET", f"{_RUN}/credentials-for-read", self.of_run("read")),
            Route("POST", f"{_RUN}/credentials-for-read", self.of_run("read")),
            Route("POST", f"{_RUN}/credentials-for-write", self.of_run("write")),
            Route("GET", f"{_MODEL}/directories", self.list_of_model),
            Route("POST", f"{_MODEL}/credentials-for-download", self.of_model("read")),
            Route("POST", f"{_MODEL}/credentials-for-upload", self.of_model("write")),
            Route("GET", signed, self.read, public=True),
            Route("PUT", signed, self.write, public=True),
        )

    def list_of_run(self, request: Request) -> Response:
        """What lies in a folder of a run's artifacts."""
        uri = self.tracking.artifact_uri(request.asked("run_id"))
        return self._listed(request, uri, request.query.get("path", ""))

    def list_of_model(self, request: Request) -> Response:
        """What lies in a folder of a model's artifacts."""
        uri = self.tracking.model_uri(request.parameters["model_id"])
        return self._listed(request, uri, request.query.get("artifact_directory_path", ""))

    def of_run(self, action: str) -> Callable[[Request], Response]:
        """Links to a run's artifacts; whether one is there shows when a link is followed."""

        def answer(request: Request) -> Response:
            run_id = request.query.get("run_id") or request.text("run_id")
            uri = self.tracking.artifact_uri(run_id)
            infos: list[Json] = [
                {"run_id": run_id, "path": path} | self._link(request, action, uri, path)
                for path in _asked_paths(request, "path")
            ]
            return Response(json={"credential_infos": infos})

        return answer

    def of_model(self, action: str) -> Callable[[Request], Response]:
        """Links to a model's artifacts."""

        def answer(request: Request) -> Response:
            uri = self.tracking.model_uri(request.parameters["model_id"])
            found: list[Json] = [
                {"credential_info": {"path": path} | self._link(request, action, uri, path)}
                for path in _asked_paths(request, "paths")
            ]
            return Response(json={"credentials": found})

        return answer

    def read(self, request: Request) -> Response:
        """The file behind a link."""
        file = self._followed(request, "read")
        if not file.is_file():
            path = request.parameters["path"]
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"No such artifact: {path}")
        return file_answer(request, file)

    def write(self, request: Request) -> Response:
        """Put a file behind a link."""
        file = self._followed(request, "write")
        check_writable(file, overwrite=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        request.content.move_to(file)
        return Response(body=b"")

    def _link(self, request: Request, action: str, uri: str, path: str) -> JsonObject:
        profile = request.server.profile
        if not uri.startswith(MANAGED) and profile.flag("managed-artifacts"):
            message = f"Credentials are given for artifacts below {MANAGED} alone, not for '{uri}'."
            raise ApiError(400, "INVALID_PARAMETER_VALUE", message)
        key = request.tenant.key
        whole = normal(f"{uri.removeprefix('dbfs:')}/{path}")
        signature = self.signer.sign(action, key, whole)
        link = f"/artifacts/{action}/{key}/{signature}{quote(whole)}"
        return {"signed_uri": request.server.url + link, "headers": [], "type": _KIND}

    def _followed(self, request: Request, action: str) -> Path:
        key, signature = request.parameters["tenant"], request.parameters["signature"]
        path = "/" + request.parameters["path"]
        tenant = request.server.tenants.by_key(key)
        allowed = request.parameters["action"] == action
        if tenant is None or not (allowed and self.signer.holds(signature, action, key, path)):
            raise ApiError(403, "PERMISSION_DENIED", "The signature of this link does not match.")
        return self.tracking.on_disk(tenant, f"dbfs:{path}")

    def _listed(self, request: Request, uri: str, path: str) -> Response:
        root = self.tracking.on_disk(request.tenant, uri)
        place = located(root, normal(f"/{path}"))
        found = sorted(place.iterdir()) if place.is_dir() else [place] if place.is_file() else []
        files: list[Json] = [_entry(root, one) for one in found]
        return Response(json={"root_uri": uri, **({"files": files} if files else {})})


def _entry(root: Path, file: Path) -> JsonObject:
    entry: JsonObject = {"path": str(file.relative_to(root)), "is_dir": file.is_dir()}
    return entry if file.is_dir() else entry | {"file_size": file.stat().st_size}


def _asked_paths(request: Request, name: str) -> list[str]:
    """The paths that links are wanted to; a query gives one."""
    given = request.query.get(name) or request.json_or_empty.get(name)
    paths = given if isinstance(given, list) else [given] if given else []
    if not paths:
        raise missing(name)
    if not all(isinstance(path, str) for path in paths):
        raise invalid(f"`{name}` is a list of paths.")
    return [normal(f"/{path}")[1:] for path in paths]
