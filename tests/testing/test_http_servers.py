"""What a server of a test prints: nothing about clients that go away."""

import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from tests.http_servers import QuietThreadingServer


def answered(answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
    """Send a request, and go away before the answer comes."""
    came, gone = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.set()
            gone.wait()
            answer(self)

    with QuietThreadingServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False  # they are waited for in the end
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        client = socket.create_connection(("127.0.0.1", server.server_port))
        # closed at once, with a reset
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        came.wait()
        client.close()
        gone.set()
        server.shutdown()
        thread.join()


def test_a_client_that_goes_away_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    def write(handler: BaseHTTPRequestHandler) -> None:
        while True:
            handler.wfile.write(b"x" * 65536)

    answered(write)
    assert "Traceback" not in capfd.readouterr().err


def test_a_fault_of_the_server_itself_does(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(handler: BaseHTTPRequestHandler) -> None:
        raise ValueError("a fault of the test")

    answered(fail)
    assert "a fault of the test" in capfd.readouterr().err
