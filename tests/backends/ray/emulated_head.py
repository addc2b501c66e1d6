"""The dashboard of a cluster whose head keeps its files on this machine. The depot is the real one;
jobs are taken, and never start."""

import glob
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sgpu_decl.backends.ray.cluster.depot import _Depot
from sgpu_decl.backends.ray.cluster.head_names import DEPOT_ID, HEAD_FOLDER
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES
from tests.http_servers import QuietThreadingServer

_VALUES, _JOBS = "/api/packages/gcs/", "/api/jobs/"


class EmulatedHead:
    """`logs` are those of Ray's session, `packages` the values that were put, `jobs` what was
    submitted, by id."""

    def __init__(self, url: str, logs: Path) -> None:
        self.url = url
        self.logs = logs
        self.packages: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self._depot = _Depot(str(logs / HEAD_FOLDER))
        self._lock = threading.Lock()

    def put(self, name: str, value: bytes) -> None:
        if not name.startswith(DEPOT_ID):
            self.packages[name] = value
            return
        with self._lock:  # it does one message after the other
            self._depot.answer(name.removeprefix(DEPOT_ID), value)

    def submit(self, body: bytes) -> None:
        job = json.loads(body)
        self.jobs[job["submission_id"]] = {**job, "status": "PENDING"}

    def get(self, path: str, query: dict[str, str]) -> bytes | None:
        """What a path answers with; None for 404."""
        if path == FILE:
            return (self.logs / query["filename"]).read_bytes()
        answers: dict[str, Any] = {
            "/api/version": {"session_name": "one"},
            NODES: {"data": {"result": {"result": [HEAD]}}},
            NAMES: {"data": {"result": {"internal": self._names(query.get("glob", ""))}}},
            **{f"{_JOBS}{name}": job for name, job in self.jobs.items()},
        }
        return json.dumps(answers[path]).encode() if path in answers else None

    def _names(self, pattern: str) -> list[str]:
        names = glob.glob(pattern, root_dir=self.logs)
        return [f"{name}/" if (self.logs / name).is_dir() else name for name in names]


@contextmanager
def emulated_head(logs: Path) -> Iterator[EmulatedHead]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            try:
                content = head.get(parts.path, query)
            except OSError as error:
                self._answer(500, str(error).encode())
                return
            self._answer(404 if content is None else 200, content or b"")

        def do_PUT(self) -> None:
            head.put(self.path.removeprefix(_VALUES), self._body())
            self._answer(200, b"{}")

        def do_POST(self) -> None:
            head.submit(self._body())
            self._answer(200, b"{}")

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers["Content-Length"]))

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    with QuietThreadingServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        head = EmulatedHead(f"http://127.0.0.1:{server.server_address[1]}", logs)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield head
        finally:
            server.shutdown()
