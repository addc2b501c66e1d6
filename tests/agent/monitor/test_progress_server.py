"""The server speaks the protocol of Kubeflow Trainer, over real connections."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from sgpu_decl.agent.monitor import progress_server
from sgpu_decl.agent.monitor.progress_estimate import Report
from sgpu_decl.agent.monitor.progress_server import serve
from tests.support import until

TOKEN = "a token"


class Server:
    def __init__(self) -> None:
        self.heard: list[Report] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        serve(self.socket, TOKEN, self.heard.append)

    def post(self, body: bytes, *, token: str = TOKEN, method: str = "POST") -> int:
        """As Kubeflow's proposal shows it for any program."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/progress", data=body, method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def status(self, **status: Any) -> int:
        return self.post(json.dumps({"trainerStatus": status}).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.socket.close()


def metrics(**values: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def test_the_reports_of_hugging_faces_trainer(server: Server) -> None:
    assert server.status(progressPercentage=0, metrics=metrics(total_steps=300)) == 200
    going = metrics(loss=1.5, current_step=120, total_steps=300, current_epoch=0.4)
    assert server.status(progressPercentage=40, metrics=going) == 200
    assert server.status(progressPercentage=100, metrics=metrics(loss=1.2)) == 200
    first, second, third = server.heard
    assert (first.step, first.total, first.unit) == (0, 300, "step")
    assert (second.step, second.total) == (120, 300)
    assert second.metrics == {"loss": 1.5, "current_epoch": 0.4}
    assert (third.step, third.total, third.unit) == (100, 100, "percent")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no JSON", b"[]", b"null", b"{}", b'{"trainerStatus": 3}', b'{"trainerStatus": {}}',
        b'{"trainerStatus": {"metrics": 5}}', b'{"trainerStatus": {"metrics": [{}]}}',
        b'{"trainerStatus": {"progressPercentage": "half"}}', b"\xff\x00", b"[" * 60_000,
        b'{"trainerStatus": {"progressPercentage": NaN}}',
    ],
)  # fmt: skip
def test_garbage_is_refused_and_nothing_is_noted(server: Server, body: bytes) -> None:
    assert server.post(body) == 400
    assert server.heard == []
    assert server.status(progressPercentage=50) == 200


def test_who_does_not_know_the_token_is_refused(server: Server) -> None:
    assert server.post(b"{}", token="another") == 401
    assert server.post(b"{}", method="DELETE") == 405


@pytest.mark.parametrize("length", ["999999999", "9" * 5000, "\xb2"])
def test_a_large_body_is_refused_unread(server: Server, length: str) -> None:
    """Also one whose length Python takes for digits and for no number."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = (
            f"POST / HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
        )
        connection.sendall(head.encode("latin-1"))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
    assert server.status(progressPercentage=50) == 200


def test_who_says_nothing_keeps_nobody_waiting_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_server, "_PATIENCE", 0.05)
    with socket.create_connection(("127.0.0.1", server.port)):
        assert server.status(progressPercentage=7) == 200


def test_many_posts_are_slowed_down_and_each_is_heard(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(progress_server, "_sleep", pauses.append)
    for percent in range(250):
        assert server.status(progressPercentage=percent % 100) == 200
    until(lambda: len(server.heard) == 250)
    assert len(pauses) == 2
    assert all(0 <= pause <= 1 for pause in pauses)
