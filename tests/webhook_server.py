"""A server of tests that is told of the ends of runs."""

import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_servers import QuietThreadingServer

__all__ = ["WebhookServer"]


class WebhookServer:
    """Notes what it is sent. It answers with the next of `answers`, then with 200; while `speaks`
    is not set, it does not answer at all."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.speaks = threading.Event()
        self.speaks.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append((dict(self.headers), body))
                server.speaks.wait()
                code = server.answers.pop(0) if server.answers else 200
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_given: Any) -> None:
                pass

        self._server = QuietThreadingServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/services/the-secret-path"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.speaks.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]
