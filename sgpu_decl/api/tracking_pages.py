"""The pages of MLflow on the store of a project: `sgpu mlflow ui`."""

import getpass
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound, Usage
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.maintenance.tracking_sync import require_mlflow
from sgpu_decl.runs.table_rows import mlflow_link
from sgpu_decl.tracking.store_location import default_uri, sqlite_file, ui_command

if TYPE_CHECKING:
    from sgpu_decl.api.session import Session
    from sgpu_decl.tracking.last_metrics import MetricSource

_HOST = "127.0.0.1"
_TRIED = 20  # ports from the first one on
_SSH_PORT = "22"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingPages:
    """`argv` serves the pages at `url`. `tunnel` is the command that makes the URL work on the
    machine of a user who came here by ssh, None if nobody did."""

    argv: tuple[str, ...]
    url: str
    tunnel: str | None


def tracking_pages(
    session: "Session", port: int | None, environ: Mapping[str, str]
) -> TrackingPages:
    """Return the command that serves the pages of the project's own store on this machine.

    Args:
        port: see `free_port`.

    Raises:
        NotFound: no run was tracked there yet.
        Usage: the port is taken.
        SgpuError: MLflow is not installed.
    """
    home = session.state_dir.parent
    uri = default_uri(home)
    store = sqlite_file(uri)
    command = ui_command(uri, home=home)
    if store is None or command is None or not store.exists():
        raise NotFound(
            "no run of this project was tracked in its own store yet",
            hint="apply one; for runs in another store, `sgpu status` names it",
        )
    require_mlflow()
    chosen = free_port(port)
    words = shlex.split(command)[1:]
    argv = (sys.executable, "-m", "mlflow", *words, "--host", _HOST, "--port", str(chosen))
    return TrackingPages(argv=argv, url=page_url(chosen), tunnel=_tunnel(chosen, environ))


def store_elsewhere(session: "Session") -> "tuple[str, MetricSource] | None":
    """The store of the newest attempt that is tracked without a server, and its host; None if that
    is this machine, or if there is none."""
    runs = session.runs
    views = [view for view in runs.describe(runs.current()) if view.started_at is not None]
    for view in sorted(views, key=lambda view: str(view.started_at), reverse=True):
        link = mlflow_link(view) or {}
        elsewhere = "host" in link
        if link and runs.ui_command(str(link["tracking_uri"]), elsewhere=elsewhere) is not None:
            source, _ = runs.tracked(view)
            return (str(link["host"]), source) if elsewhere and source is not None else None
    return None


def page_url(port: int) -> str:
    """The address of pages at a port of this machine."""
    return f"http://{_HOST}:{port}"


def free_port(port: int | None) -> int:
    """The port for pages; by default 5000, or the next free one. Raises Usage: it is taken."""
    first = 5000 if port is None else port
    for candidate in range(first, first + (1 if port is not None else _TRIED)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, candidate))
            except OSError:
                continue
            return candidate
    raise Usage(f"port {first} is taken", hint="name another one with `--port`")


def _tunnel(port: int, environ: Mapping[str, str]) -> str | None:
    """sshd says in SSH_CONNECTION from where to where the user came: four words."""
    connection = environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return None
    _, _, here, ssh_port = connection
    words = ["ssh", "-N", "-L", f"{port}:{_HOST}:{port}"]
    words += [] if ssh_port == _SSH_PORT else ["-p", ssh_port]
    return shlex.join([*words, f"{environ.get('USER') or _user()}@{here}"])


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
