"""A proxy in front of a dashboard that counts, and loses answers when it is told to."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.http_servers import QuietThreadingServer


class LossyProxy:
    """`url` is its address. The next request that begins with `lose`, as in `POST /api/jobs/`, is
    passed on, and its answer is lost. With `loses_each`, so is the first answer to each request:
    `lost` has those. `requests` are those since the last `forget`, and `sent` is what their bodies
    had, in bytes."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.lose: str | None = None
        self.loses_each = False
        self.lost: set[str] = set()
        self.forget()

    def loses(self, request: str) -> bool:
        """Whether the answer to a request is to be lost."""
        name = request.partition("?")[0]
        if self.loses_each and name not in self.lost:
            self.lost.add(name)
            return True
        if self.lose is not None and request.startswith(self.lose):
            self.lose = None
            return True
        return False

    def forget(self) -> None:
        """Count anew."""
        self.requests: list[str] = []
        self.sent = 0


@contextmanager
def lossy_proxy(target: str) -> Iterator[LossyProxy]:
    host = urlsplit(target).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            request = f"{self.command} {self.path}"
            proxy.requests.append(request)
            proxy.sent += len(body)
            if proxy.loses(request):
                self.close_connection = True
                return
            with suppress(ConnectionError):  # of a client that was killed
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = _pass_on  # noqa: N815  names of the base class

        def log_message(self, *_: object) -> None:
            return

    with QuietThreadingServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        proxy = LossyProxy(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            server.shutdown()
