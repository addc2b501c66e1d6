"""An HTTP proxy in front of a server, through which requests can go wrong. It counts them."""

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from sgpu_decl.frozen_dataclass import dataclass
from tests.http_servers import QuietThreadingServer

__all__ = ["Answer", "FaultyProxy", "faulty_proxy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the proxy answers in place of the server."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class FaultyProxy:
    """`requests` are those that came, each with its method and its path; `headers` are theirs, by
    small letters.

    Of the faults, `lose` carries a request out and closes the connection, `answer` does not carry
    it out, `silence` never answers, and `leave_out` takes a header away.
    """

    def __init__(self, behind: str) -> None:
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self._behind = urlsplit(behind).netloc
        self._lost: list[Callable[[str, str], bool]] = []
        self._answers: list[tuple[Callable[[str, str], bool], Answer]] = []
        self._stripped: set[str] = set()
        self._silent = False
        self._over = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                proxy._serve(self)

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.serve)
        self._server = QuietThreadingServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def lose(self, matches: Callable[[str, str], bool], *, times: int = 1) -> None:
        """Lose the answers of the next `times` requests that match by method and path."""
        self._lost += [matches] * times

    def answer(self, matches: Callable[[str, str], bool], answer: Answer) -> None:
        """Answer all requests that match, until `clear`."""
        self._answers.append((matches, answer))

    def leave_out(self, header: str) -> None:
        self._stripped.add(header.lower())

    def silence(self) -> None:
        self._silent = True

    def clear(self) -> None:
        self._lost, self._answers, self._stripped, self._silent = [], [], set(), False

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        method, path = request.command, request.path
        self.requests.append((method, path))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        content = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if self._silent:
            self._over.wait()
            request.close_connection = True
            return
        for matches, answer in self._answers:
            if matches(method, path):
                _send(request, answer.status, answer.headers, answer.body)
                return
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in self._stripped
        }
        connection = http.client.HTTPConnection(self._behind)
        connection.request(method, path, content, headers)
        with connection.getresponse() as response:
            body = response.read()
            kept = [item for item in response.getheaders() if item[0].lower() not in _OWN]
            length = response.getheader("Content-Length")
        connection.close()
        for matches in self._lost:
            if matches(method, path):
                self._lost.remove(matches)
                request.close_connection = True
                return
        if method == "HEAD" and length is not None:
            kept.append(("Content-Length", length))
        _send(request, response.status, kept, body)


_OWN = {"connection", "content-length", "transfer-encoding", "server", "date", "keep-alive"}


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
) -> None:
    request.send_response(status)
    for name, value in headers:
        request.send_header(name, value)
    if request.command != "HEAD":
        request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)


@contextmanager
def faulty_proxy(behind: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(behind)
    try:
        yield proxy
    finally:
        proxy.close()
