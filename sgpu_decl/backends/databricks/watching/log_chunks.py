"""Logs as the platform keeps them with a run's MLflow artifacts: text in chunks, without times.

A line ends with a newline alone, as the node agent writes it: a carriage return of a progress bar,
a form feed or U+2028 is part of it. It may go on in the next chunk.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.workspace_files import VolumePlace
from sgpu_decl.backends.remote.watching.node_logs import NodeLine

_NODE = re.compile(r"node_(\d+)")
_CHUNK = re.compile(r"logs-(\d+)\.chunk\.txt")


class Artifacts(Protocol):
    """The artifacts of one MLflow run. Paths are relative to where they lie."""

    def list(self, folder: str) -> list[str]:
        """The paths of what lies in a folder; nothing where it is not there."""

    def read(self, path: str) -> bytes:
        """A file."""


def artifacts_of(connection: Connection, run: str) -> Artifacts:
    """The artifacts of a run. MLflow gives no links to those in a volume: these are files of the
    volume (evidence: A18)."""
    answer = connection.ask(
        f"looking for logs of the MLflow run {run}", "/api/2.0/mlflow/runs/get", run_id=run
    )
    uri = str(answer["run"]["info"].get("artifact_uri") or "")
    path = posixpath.normpath(uri.removeprefix("dbfs:"))
    if path.startswith("/Volumes/"):
        return _InVolume(VolumePlace(connection), path)
    return _Managed(connection, run)


def node_chunks(artifacts: Artifacts, attempt: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the nodes of one attempt that have a log, each with the paths of its chunks in order: a
    node that wrote nothing has an empty one."""
    nodes = _numbered(artifacts, f"logs/attempt_{attempt}", _NODE) or _numbered(
        artifacts, "logs", _NODE
    )
    for node, path in nodes:
        yield node, [chunk for _, chunk in _numbered(artifacts, path, _CHUNK)]


def node_records(
    artifacts: Artifacts, node: int, chunks: Sequence[str], *, whole: bool
) -> Iterator[NodeLine]:
    """Yield the lines of a node. Their place in the text stands for the time, so that the same line
    is the same record at every look.

    Args:
        whole: nothing more comes; else a last line without an end is left for later.
    """
    content = b"".join(artifacts.read(chunk) for chunk in chunks)
    *lines, rest = content.split(b"\n")
    if rest and whole:
        lines.append(rest)
    for number, line in enumerate(lines, start=1):
        yield NodeLine(number, node, line.decode("utf-8", "replace"))


def _numbered(artifacts: Artifacts, folder: str, names: re.Pattern[str]) -> list[tuple[int, str]]:
    matches = ((names.fullmatch(path.rpartition("/")[2]), path) for path in artifacts.list(folder))
    return sorted((int(match[1]), path) for match, path in matches if match)


@dataclass(frozen=True, slots=True)
class _InVolume:
    files: VolumePlace
    root: str

    def list(self, folder: str) -> list[str]:
        return [f"{folder}/{entry.name}" for entry in self.files.list(f"{self.root}/{folder}")]

    def read(self, path: str) -> bytes:
        return self.files.get(f"{self.root}/{path}")


@dataclass(frozen=True, slots=True)
class _Managed:
    connection: Connection
    run: str

    def list(self, folder: str) -> list[str]:
        pages = self.connection.pages(
            f"looking for logs of the MLflow run {self.run}",
            "/api/2.0/mlflow/artifacts/list",
            run_id=self.run,
            path=folder,
        )
        return [str(file["path"]) for page in pages for file in page.get("files") or ()]

    def read(self, path: str) -> bytes:
        import requests

        doing = f"reading the log `{path}`"
        answer: dict[str, Any] = self.connection.ask(
            doing, "/api/2.0/mlflow/artifacts/credentials-for-read", run_id=self.run, path=path
        )
        (link,) = answer["credential_infos"]
        headers = {item["name"]: item["value"] for item in link.get("headers") or ()}
        with self.connection.explained(doing):
            response = requests.get(link["signed_uri"], headers=headers, timeout=60)
            response.raise_for_status()
        return response.content
