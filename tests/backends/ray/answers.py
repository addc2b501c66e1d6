"""A small HTTP server that gives fixed answers, in the place of a dashboard."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_connection import TimeBudget
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from tests.http_servers import QuietThreadingServer

FILE, NAMES, NODES = "/api/v0/logs/file", "/api/v0/logs", "/api/v0/nodes"
"""The paths of a file of the head, of the names of its files, and of the nodes."""

HEAD = {"node_id": "h", "is_head_node": True, "state": "ALIVE"}
"""What a dashboard says of the head, as far as it is read."""

RECORDED = Path(__file__).parent / "recorded"
"""What the dashboards of two clusters answered, each with a head and a node, GPUs that were
declared, a placement group and an actor. What differs from machine to machine is left out. `jobs`
has one that runs, one that succeeded, one that failed and one that was stopped, in this order."""


class Answers:
    """`by_path` maps a path to an answer: JSON, or a status and a text, or a function that returns
    one. A path without one gets the answer of its folder, such as `/api/jobs/*`, or 404. `requests`
    are those that came, with their token, `bodies` what they sent, `queries` what followed the
    question mark. Answers come `delay` seconds late."""

    def __init__(self, url: str, by_path: Mapping[str, Any], token: str | None) -> None:
        self.url = url
        self.by_path = dict(by_path)
        self.token = token
        self.requests: list[tuple[str, str | None]] = []
        self.bodies: list[tuple[str, bytes]] = []
        self.queries: list[str] = []
        self.connections = 0
        self.delay = 0.0

    def dashboard(self, credentials: Credentials | None = None) -> Dashboard:
        address = DashboardAddress(url=self.url, source="backend.address")
        return Dashboard(address, credentials or Credentials(), TimeBudget(10.0))


def recorded(version: str) -> dict[str, Any]:
    """The answers of a version of Ray."""
    paths = {
        "/api/v0/cluster_metadata": "cluster_metadata",
        "/api/v0/nodes": "nodes",
        "/nodes": "summary",
        "/api/version": "version",
        "/api/jobs/": "jobs",
    }
    return {path: recorded_answer(version, name) for path, name in paths.items()}


def recorded_answer(version: str, name: str) -> Any:
    """One answer. Beside those of `recorded` there are `names` of files, `submission` and `stop` of
    a job, and `packages`: statuses and texts of a value that is not there, is put, and is there."""
    return json.loads((RECORDED / version / f"{name}.json").read_text())


@contextmanager
def answering(by_path: Mapping[str, Any], *, token: str | None = None) -> Iterator[Answers]:
    """A server with these answers; with a `token`, it refuses requests without it as Ray does."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            answers.connections += 1

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            sent = self.headers.get("Authorization")
            answers.requests.append((f"{self.command} {path}", sent))
            answers.bodies.append((f"{self.command} {path}", body))
            answers.queries.append(query)
            if answers.delay:
                time.sleep(answers.delay)
            others = answers.by_path.get(f"{path.rpartition('/')[0]}/*", (404, "404: Not Found"))
            status, content = 200, answers.by_path.get(path, others)
            if callable(content):
                content = content()
            if answers.token is not None and sent != f"Bearer {answers.token}":
                content = (403, "Forbidden") if sent else (401, "Unauthorized")
            if content == "end":  # the connection ends without an answer
                self.close_connection = True
                return
            if isinstance(content, tuple):
                status, text = content
            else:
                text = json.dumps(content)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            if 300 <= status < 400:
                self.send_header("Location", "https://login.example")
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = _answer  # noqa: N815  names of the base class

        def log_message(self, *_: object) -> None:
            return

    with QuietThreadingServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        answers = Answers(f"http://127.0.0.1:{server.server_address[1]}", by_path, token)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield answers
        finally:
            server.shutdown()
            thread.join()
