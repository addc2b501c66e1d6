"""Servers of tests. A client that goes away is no fault of theirs: it leaves no traceback."""

import sys
from http.server import HTTPServer, ThreadingHTTPServer

__all__ = ["QuietServer", "QuietThreadingServer"]


class QuietServer(HTTPServer):
    """Serves one request after the other."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class QuietThreadingServer(QuietServer, ThreadingHTTPServer):
    """Serves each connection in a thread of its own."""
