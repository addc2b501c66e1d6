"""MLflow's pages of a store on a box, at a port of this machine."""

import shlex
from collections.abc import Callable
from pathlib import Path

from sgpu_decl.agent.box.store_pages import PATIENCE
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.errors import BackendError
from sgpu_decl.tracking.store_location import ui_command


def serve_pages(
    box: Box, folder: str, uri: str, port: int, ready: Callable[[], None], *, home: Path
) -> None:
    """Serve them until the connection ends, which this process does whenever it ends.

    Args:
        folder: that of an attempt on the box, which is tracked in the store.
        uri: that of the store.
        port: a free one of this machine's loopback address.
        ready: called once they can be opened.
        home: the folder there that keeps the store.

    Raises:
        BackendError: MLflow does not start there, or the connection was lost.
    """
    there = box.ask("claim_loopback_port")["port"]
    words = shlex.split(ui_command(uri, home=home) or "")
    tunnel = box.tunnel(port, there)
    try:
        message = {"folder": folder, "words": words, "port": there}
        try:
            tunnel.send("serve_store", message, patience=2 * PATIENCE)
        except BackendError as error:
            if error.code == "mlflow_missing":
                error.hint = (
                    f"install it on `{box.host}` for one of them; the next apply brings the "
                    "environment of a run back that gc has deleted there"
                )
            raise
        ready()
        tunnel.wait()
    finally:
        tunnel.close()
