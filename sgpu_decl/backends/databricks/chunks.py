"""Logs as the platform keeps them with a run's MLflow artifacts: text in chunks, without times."""

import re
from collections.abc import Iterator
from typing import Any

from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.databricks.lines import Record

__all__ = ["chunk_records"]

_NODE = re.compile(r"node_(\d+)")
_CHUNK = re.compile(r"logs-(\d+)\.chunk\.txt")


def chunk_records(connection: Connection, mlflow_run: str, attempt: int) -> Iterator[Record]:
    """Yield the lines of one attempt, node by node. Their place in the text stands for the time, so
    that the same line is the same record at every look."""
    folder = f"logs/attempt_{attempt}"
    nodes = _listed(connection, mlflow_run, folder, _NODE) or _listed(
        connection, mlflow_run, "logs", _NODE
    )
    for node, path in nodes:
        number = 0
        for _, chunk in _listed(connection, mlflow_run, path, _CHUNK):
            for line in _text(connection, mlflow_run, chunk).splitlines():
                number += 1
                yield Record(number, node, line)


def _listed(
    connection: Connection, run: str, folder: str, names: re.Pattern[str]
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    token: str | None = None
    while True:
        query = {"run_id": run, "path": folder, **({"page_token": token} if token else {})}
        page: dict[str, Any] = connection.ask(
            f"looking for logs of the MLflow run {run}", "/api/2.0/mlflow/artifacts/list", **query
        )
        for file in page.get("files") or ():
            path = str(file["path"])
            if match := names.fullmatch(path.rpartition("/")[2]):
                found.append((int(match[1]), path))
        token = page.get("next_page_token")
        if not token:
            return sorted(found)


def _text(connection: Connection, run: str, path: str) -> str:
    import requests

    answer: dict[str, Any] = connection.ask(
        f"reading the log `{path}`",
        "/api/2.0/mlflow/artifacts/credentials-for-read",
        run_id=run,
        path=path,
    )
    (found,) = answer["credential_infos"]
    headers = {it["name"]: it["value"] for it in found.get("headers") or ()}
    with connection.explained(f"reading the log `{path}`"):
        response = requests.get(found["signed_uri"], headers=headers, timeout=60)
        response.raise_for_status()
    return response.content.decode("utf-8", "replace")
