"""Send requests that a workspace was sent before, with the SDK and nothing else.

    python replaying.py FILE THREADS

FILE has them as the emulator tells them. Those that launch one run are sent one after the other,
and as many runs at once as there are THREADS. What belongs to no run comes first, looks at runs
last. The runs that it starts are others: staging folder and tokens are.
"""

import io
import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from databricks.sdk import WorkspaceClient

from sgpu_decl.backends.databricks.api.workspace_files import UploadForm

Request = dict[str, Any]
_FORM = 700  # bytes of a form around its file, about
_LAUNCH = re.compile(r"/runs/\w+/[^/\"]+/[^/\"]+")  # the folder of a launch, below the staging one


def main(file: str, threads: int) -> None:
    client = WorkspaceClient()
    shared: list[Request] = []
    looks: list[Request] = []
    launches: dict[str, list[Request]] = {}
    for request in json.loads(Path(file).read_text()):
        of = _LAUNCH.search(unquote(request["path"]) + json.dumps(request["json"]))
        if of is not None:
            launches.setdefault(of[0], []).append(request)
        elif request["path"].endswith("/runs/get"):
            looks.append(request)
        else:
            shared.append(request)
    _send(client, shared)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda launch: _send(client, launch), launches.values()))
        list(pool.map(lambda look: _send(client, [look]), looks))


def _send(client: WorkspaceClient, requests: Sequence[Request]) -> None:
    for item in requests:
        path = item["path"].replace(".sgpu", ".bare")
        options: dict[str, Any] = {"query": item["query"]}
        if path.endswith("/workspace/import"):
            form = {name: text.replace(".sgpu", ".bare") for name, text in item["json"].items()}
            with UploadForm(
                form, "content", io.BytesIO(bytes(max(1, item["size"] - _FORM)))
            ) as body:
                options["headers"], options["data"] = {"Content-Type": body.content_type}, body
                client.api_client.do(item["method"], path, **options)
            continue
        if item["json"] is not None:
            body = json.loads(json.dumps(item["json"]).replace(".sgpu", ".bare"))
            if "idempotency_token" in body:
                body["idempotency_token"] = f"bare-{body['idempotency_token']}"[:64]
            options["body"] = body
        elif item["method"] == "POST":
            options["headers"] = {"Content-Type": "application/octet-stream"}
            options["data"] = bytes(item["size"])
        client.api_client.do(item["method"], path, **options)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
