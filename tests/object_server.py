"""An S3 server for tests, in a process of its own: moto's. Its buckets are in memory.

moto looks whether an object is there, and then writes it, so requests are carried out one by one
here. Two paths that S3 has not set its clock and the time of an object.
"""

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

__all__ = ["PAGE", "ObjectServer", "running_object_server"]

PAGE = 100
"""The keys in one answer to a list. S3 itself gives a thousand."""

_AHEAD, _AGE = "/-/ahead/", "/-/age/"


class ObjectServer:
    """A running server. `endpoint` is its URL."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def make_bucket(self, name: str) -> None:
        self._ask("PUT", f"/{name}")

    def ahead(self, seconds: float) -> None:
        """Set the clock of the server so many seconds ahead of that of this machine."""
        self._ask("POST", f"{_AHEAD}{seconds}")

    def age(self, bucket: str, key: str, seconds: float) -> None:
        """Let an object be that much older."""
        self._ask("POST", f"{_AGE}{seconds}/{bucket}/{quote(key)}")

    def _ask(self, method: str, path: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}{path}", method=method)
        with urllib.request.urlopen(request):
            pass


@contextmanager
def running_object_server() -> Iterator[ObjectServer]:
    """A server that runs as long as the block lasts."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.object_server"],
        env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port, "the S3 server did not start"
        yield ObjectServer(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.communicate()


def _serve() -> None:
    import moto.s3.models
    import moto.server
    from werkzeug.serving import WSGIRequestHandler, make_server

    models: Any = moto.s3.models
    servers: Any = moto.server
    buckets = servers.DomainDispatcherApplication(servers.create_backend_app)
    one_by_one = threading.Lock()
    real, ahead = models.utcnow, timedelta()
    models.utcnow = lambda: real() + ahead

    def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        nonlocal ahead
        path = environ["PATH_INFO"]
        with one_by_one:
            if path.startswith(_AHEAD):
                ahead = timedelta(seconds=float(path.removeprefix(_AHEAD)))
            elif path.startswith(_AGE):
                seconds, bucket, key = path.removeprefix(_AGE).split("/", 2)
                found: Any = models.s3_backends["123456789012"]["aws"].get_object(bucket, key)
                found.last_modified -= timedelta(seconds=float(seconds))
            else:
                return list(buckets(environ, start))
        start("204 No Content", [])
        return [b""]

    class Quiet(WSGIRequestHandler):
        def log(self, *_: object) -> None:
            pass

    with make_server("127.0.0.1", 0, serve, threaded=True, request_handler=Quiet) as server:
        print(server.port, flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()  # until the tests are over, also if they are killed


if __name__ == "__main__":
    _serve()
