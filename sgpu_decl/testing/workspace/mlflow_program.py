"""MLflow's own tracking server as one process: `python -m ... FOLDER` reads a key from its stdin,
prints its port, and ends with its stdin. It answers those alone who know the key.

It is the application behind `mlflow server`, without that command's workers and job runners, which
take five times as long to come up.
"""

import hmac
import os
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["KEY_HEADER", "MANAGED", "main"]

KEY_HEADER = "X-Sgpu-Key"
MANAGED = "dbfs:/databricks/mlflow-tracking"
"""Where artifacts lie unless somebody chooses another place (evidence: A18): MLflow's client takes
paths of this form for the platform's own."""

_AT_ONCE = 4  # SQLite takes one writer at a time; those in excess of MLflow's pool would fail


def main(folder: Path) -> int:
    """Serve what lies in `folder` on a loopback port until stdin ends."""
    store = f"sqlite:///{folder / 'mlflow.db'}"
    # What `mlflow server` hands to its application.
    os.environ.update(
        {
            "_MLFLOW_SERVER_FILE_STORE": store,
            "_MLFLOW_SERVER_REGISTRY_STORE": store,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": MANAGED,
        }
    )
    key = os.read(0, 4096).strip()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    from mlflow.server import app
    from mlflow.server.handlers import initialize_backend_stores
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
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

    SqlAlchemyStore.MODELS_FOLDER_NAME = "logged_models"  # as MLflow's client expects it
    initialize_backend_stores(store, None, MANAGED)
    server = make_server("127.0.0.1", 0, admitted, threaded=True, request_handler=QuietHandler)
    print(server.port, flush=True)  # noqa: T201  whoever started this process reads it
    server.serve_forever()
    return 0


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
