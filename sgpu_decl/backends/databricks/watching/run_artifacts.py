"""The artifacts of an MLflow run of a workspace: logs that the platform keeps there are read, and
reports added.

MLflow gives links to what lies in its own place, as its client takes them
(https://github.com/mlflow/mlflow/blob/master/mlflow/store/artifact/databricks_artifact_repo.py).
What lies in a volume are files of the volume (evidence: A18).
"""

import posixpath
from dataclasses import dataclass
from typing import Any, Protocol

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.workspace_files import VolumePlace
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json

_LINKS = "/api/2.0/mlflow/artifacts/credentials-for"
# https://learn.microsoft.com/en-us/rest/api/storageservices/put-blob
_BLOB = {"x-ms-blob-type": "BlockBlob"}
# https://learn.microsoft.com/en-us/rest/api/storageservices/datalakestoragegen2/path/update
_MADE, _FILLED = "resource=file", "action=append&position=0&flush=true"


class Artifacts(Protocol):
    """The artifacts of one MLflow run. Paths are relative to where they lie."""

    def list(self, folder: str) -> list[str]:
        """The paths of what lies in a folder; nothing where it is not there."""

    def read(self, path: str) -> bytes:
        """A file."""

    def write(self, path: str, content: bytes) -> None:
        """Keep a file, in the place of an older one."""


def artifacts_of(connection: Connection, run: str) -> Artifacts:
    """The artifacts of a run."""
    answer = connection.ask(
        f"looking for artifacts of the MLflow run {run}", "/api/2.0/mlflow/runs/get", run_id=run
    )
    uri = str(answer["run"]["info"].get("artifact_uri") or "")
    path = posixpath.normpath(uri.removeprefix("dbfs:"))
    if path.startswith("/Volumes/"):
        return _InVolume(VolumePlace(connection), path)
    return _Managed(connection, run)


@dataclass(frozen=True, slots=True)
class _InVolume:
    files: VolumePlace
    root: str

    def list(self, folder: str) -> list[str]:
        return [f"{folder}/{entry.name}" for entry in self.files.list(f"{self.root}/{folder}")]

    def read(self, path: str) -> bytes:
        return self.files.get(f"{self.root}/{path}")

    def write(self, path: str, content: bytes) -> None:
        self.files.make_folder(self.root)
        self.files.put(f"{self.root}/{path}", content)


@dataclass(frozen=True, slots=True)
class _Managed:
    connection: Connection
    run: str

    def list(self, folder: str) -> list[str]:
        pages = self.connection.pages(
            f"looking for artifacts of the MLflow run {self.run}",
            "/api/2.0/mlflow/artifacts/list",
            run_id=self.run,
            path=folder,
        )
        return [str(file["path"]) for page in pages for file in page.get("files") or ()]

    def read(self, path: str) -> bytes:
        import requests

        doing = f"reading the artifact `{path}`"
        answer = self.connection.ask(doing, f"{_LINKS}-read", run_id=self.run, path=path)
        (link,) = answer["credential_infos"]
        with self.connection.explained(doing):
            response = requests.get(link["signed_uri"], headers=_headers(link), timeout=60)
            response.raise_for_status()
        return response.content

    def write(self, path: str, content: bytes) -> None:
        import requests

        doing = f"adding the artifact `{path}`"
        asked: dict[str, Json] = {"run_id": self.run, "path": [path]}
        (link,) = self.connection.tell(doing, f"{_LINKS}-write", asked)["credential_infos"]
        kind, uri, headers = link.get("type"), str(link["signed_uri"]), _headers(link)
        requested = [("PUT", uri, content)]
        if kind == "AZURE_SAS_URI":
            headers |= _BLOB
        elif kind == "AZURE_ADLS_GEN2_SAS_URI":
            requested = [("PUT", f"{uri}&{_MADE}", b""), ("PATCH", f"{uri}&{_FILLED}", content)]
        elif kind not in ("AWS_PRESIGNED_URL", "GCP_SIGNED_URL"):
            problem = f"{doing}: links of the kind `{kind}` are not known here"
            raise BackendError(problem, code="remote_broken")
        with self.connection.explained(doing):
            for method, place, data in requested:
                requests.request(
                    method, place, data=data, headers=headers, timeout=60
                ).raise_for_status()


def _headers(link: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in link.get("headers") or ()}
