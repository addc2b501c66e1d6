"""Tracking servers that answer with JSON of another shape, or take credentials from a URI."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Thread

import pytest

from sgpu_decl.tracking.last_metrics import TrackingStore
from tests.http_servers import QuietThreadingServer

ANSWERS = [
    {"runs": [{"info": {}}]},
    {"runs": [{}]},
    {"runs": ["run"]},
    {"runs": [{"info": {"run_id": "a"}, "data": {"metrics": [{"key": "loss"}]}}]},
    {"runs": [{"info": {"run_id": "a"}, "data": None}]},
]


@contextmanager
def serving(answer: object, headers: list[str | None]) -> Iterator[str]:
    """A server that always gives one answer, and notes the credentials that it gets."""
    body = json.dumps(answer).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with QuietThreadingServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("answer", ANSWERS, ids=json.dumps)
def test_a_strange_answer_is_a_problem_of_the_store(answer: object) -> None:
    with serving(answer, []) as server:
        metrics = TrackingStore(server, {}).last_metrics({"a": "0"})

    assert metrics.by_run == {}
    assert [server in problem for problem in metrics.problems] == [True]


def test_credentials_of_the_exported_uri_are_sent_to_that_server_alone() -> None:
    headers: list[str | None] = []
    with serving({"runs": []}, headers) as server:
        for exported in (server.replace("//", "//ann:pw@"), "http://ann:pw@other"):
            TrackingStore(server, {"MLFLOW_TRACKING_URI": exported}).last_metrics({"a": "0"})

    assert headers == ["Basic YW5uOnB3", None]


def test_a_malformed_exported_uri_is_a_problem_of_the_store() -> None:
    bad = {"MLFLOW_TRACKING_URI": "http://[bad"}
    [problem] = TrackingStore("http://server", bad).last_metrics({"a": "0"}).problems

    assert "MLFLOW_TRACKING_URI" in problem
