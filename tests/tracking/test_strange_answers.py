"""Tracking servers whose answers are JSON of another shape."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from sgpu_decl.tracking.last_metrics import read_last_metrics

ANSWERS = [
    {"runs": [{"info": {}}]},
    {"runs": [{}]},
    {"runs": ["run"]},
    {"runs": [{"info": {"run_id": "a"}, "data": {"metrics": [{"key": "loss"}]}}]},
    {"runs": [{"info": {"run_id": "a"}, "data": None}]},
]


@pytest.fixture(params=ANSWERS, ids=json.dumps)
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    body = json.dumps(request.param).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_strange_answer_is_a_problem_of_the_store(server: str) -> None:
    metrics, problems = read_last_metrics({server: {"a": "0"}}, {})

    assert metrics == {}
    assert [server in problem for problem in problems] == [True]
