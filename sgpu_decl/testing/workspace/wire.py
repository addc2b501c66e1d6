"""HTTP on the socket: bodies in, answers out. What they mean is decided in `dispatch`."""

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, cast

from sgpu_decl.testing.workspace.clock import now
from sgpu_decl.testing.workspace.dispatch import RequestContext, Severed, answer
from sgpu_decl.testing.workspace.routes import Response

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.server import Listener

__all__ = ["HttpConnection"]

_BLOCK = 1 << 18
_REASON_FREE = (204, 304)


class HttpConnection(BaseHTTPRequestHandler):
    """One connection of a client, with one request after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "sgpu-workspace"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # head and body of an answer leave together

    def __getattr__(self, name: str) -> object:
        # http.server asks for `do_<METHOD>`; any method may have a route.
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        listener = cast("Listener", self.server)
        call = RequestContext(
            method=self.command, target=self.path, headers=self.headers, blocks=self._blocks()
        )
        try:
            response = answer(listener.workspace, call)
            self._send(response)
        except (Severed, ConnectionError, TimeoutError):
            # The client sees the connection end without a (whole) answer.
            self.close_connection = True
            self._abort()

    def _blocks(self) -> Iterator[bytes]:
        """The body. Raises Severed where it ends too early."""
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            yield from self._chunks()
            return
        left = _length(self.headers.get("Content-Length") or "0", 10)
        while left:
            block = self.rfile.read(min(left, _BLOCK))
            if not block:
                raise Severed
            left -= len(block)
            yield block

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self.rfile.readline(1024)
            if not line.endswith(b"\n"):
                raise Severed
            left = _length(line.partition(b";")[0].decode("latin-1"), 16)
            if not left:
                while self.rfile.readline(65536).strip():
                    pass  # trailers
                return
            while left:
                block = self.rfile.read(min(left, _BLOCK))
                if not block:
                    raise Severed
                left -= len(block)
                yield block
            self.rfile.readline(16)

    def _send(self, response: Response) -> None:
        body = response.body
        headers = dict(response.headers)
        if body is None and response.stream is None:
            body = b"" if response.status in _REASON_FREE else json.dumps(response.json).encode()
            headers.setdefault("Content-Type", "application/json")
        length = response.length if body is None else len(body)
        chunked = length is None
        if response.status not in _REASON_FREE and "Content-Length" not in headers:
            headers |= (
                {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(length)}
            )
        self.send_response(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and response.status not in _REASON_FREE:
            for block in response.stream or (body or b"",):
                if not chunked:
                    self.wfile.write(block)
                elif block:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
                    self.wfile.flush()
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _abort(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the client was faster

    def date_time_string(self, timestamp: float | None = None) -> str:
        """What the header `Date` says."""
        return super().date_time_string(now() if timestamp is None else timestamp)

    def log_message(self, *_: object) -> None:
        """Requests are recorded, not printed."""


def _length(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise Severed from None  # whatever follows, it cannot be told where it ends
