"""MLflow's own tracking servers, forked from one process that imports MLflow once:
`python -m ...` reads requests for servers from the socket that is its stdin, and ends with it.

A server is the application behind `mlflow server`, without that command's workers and job runners,
which take five times as long to come up. It answers those alone who know its key.
"""

import hmac
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["KEY_HEADER", "MANAGED", "REQUEST_SIZE", "main"]

KEY_HEADER = "X-Sgpu-Key"
MANAGED = "dbfs:/databricks/mlflow-tracking"
"""Where artifacts lie unless somebody chooses another place (evidence: A18): MLflow's client takes
paths of this form for the platform's own."""

REQUEST_SIZE = 1 << 16
"""Bytes that a request for a server has at most: JSON with its `folder` and `key`. With it come the
descriptors of a pipe at whose end the server ends, of one for its port, and of its log."""

_DATABASE = "mlflow.db"
_AT_ONCE = 4  # SQLite takes one writer at a time; those in excess of MLflow's pool would fail


def main() -> int:
    """Fork a server for each request, until nobody can make one any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for servers
    requests = socket.socket(fileno=0)
    from mlflow.server import app, handlers  # noqa: F401  for all servers
    from mlflow.store.tracking import sqlalchemy_store  # noqa: F401

    tables = b""  # of an empty store: MLflow takes a second to make them
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_SIZE, 3)
        if not request:
            return 0
        reader, writer = os.pipe()
        if os.fork() == 0:
            requests.close()
            os.close(reader)
            _become_server(json.loads(request), descriptors, tables, writer)
            return 0
        for descriptor in (*descriptors, writer):
            os.close(descriptor)
        with open(reader, "rb") as made:
            tables = made.read() or tables


def _become_server(
    request: dict[str, str], descriptors: list[int], tables: bytes, made: int
) -> None:
    """Be the server in `folder`, in a session of its own. Without `tables`, write those of an empty
    store to `made`."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    folder = Path(request["folder"])
    os.chdir(folder)
    database = folder / _DATABASE
    if tables and not database.exists():
        database.write_bytes(tables)
    _prepare(database)
    with open(made, "wb") as pipe:
        if not tables:
            pipe.write(database.read_bytes())
    _serve(request["key"].encode())


def _prepare(database: Path) -> None:
    from mlflow.server.handlers import initialize_backend_stores
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = f"sqlite:///{database}"
    # What `mlflow server` hands to its application.
    os.environ.update(
        {
            "_MLFLOW_SERVER_FILE_STORE": store,
            "_MLFLOW_SERVER_REGISTRY_STORE": store,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": MANAGED,
        }
    )
    SqlAlchemyStore.MODELS_FOLDER_NAME = "logged_models"  # as MLflow's client expects it
    initialize_backend_stores(store, None, MANAGED)


def _serve(key: bytes) -> None:
    """Serve on a loopback port, and print it."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    from mlflow.server import app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class QuietHandler(WSGIRequestHandler):
        """Answers without a line for each request."""

        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            """Nothing to say."""

    room = threading.BoundedSemaphore(_AT_ONCE)

    def admitted(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get(f"HTTP_{KEY_HEADER.upper().replace('-', '_')}", "")
        if not hmac.compare_digest(given.encode("latin-1"), key):
            start("403 Forbidden", [("Content-Length", "0")])
            return [b""]
        with room:
            answer: Iterable[bytes] = app(environ, start)
            return answer

    server = make_server("127.0.0.1", 0, admitted, threaded=True, request_handler=QuietHandler)
    print(server.port, flush=True)  # noqa: T201  whoever asked for this server reads it
    server.serve_forever()


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
