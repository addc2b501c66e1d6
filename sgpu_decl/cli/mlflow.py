"""`sgpu mlflow`: commands about the MLflow runs of attempts."""

import os
import sys
from contextlib import suppress
from dataclasses import asdict

import click

from sgpu_decl.api.tracking_pages import (
    free_port,
    page_url,
    store_elsewhere,
    tracking_pages,
)
from sgpu_decl.cli.commands import MLFLOW_COMMANDS, LazyGroup
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.views.terminal import count

command = LazyGroup(MLFLOW_COMMANDS, "mlflow", "Show MLflow runs, or upload them to a server.")


@click.command("sync")
@click.argument("name", shell_complete=completed_by("runs"))
@click.option(
    "--to", "server", metavar="URI", help="The server; by default the one that was unreachable."
)
@project_options
@output_option()
def sync_command(*, source: ProjectSource, name: str, server: str | None, output: str) -> int:
    """Upload the MLflow run of an attempt to its server, which was unreachable when the attempt
    started. NAME is `train` or `train#8`. A second upload creates nothing twice.

    Exit codes: 0 ok, 1 error (the server is still unreachable, or there is nothing to upload).
    """
    session = source.recorded()
    ref = session.runs.find_one(name)
    result = session.sync_tracking(ref, server)
    if output == "json":
        answer({"attempt": str(ref), **asdict(result), "left": list(result.left)})
        return 0

    show(result.run_id)
    note(
        f"{ref} is in {result.tracking_uri}: {count(result.runs, 'run')}, "
        f"{count(result.metrics, 'value')} of metrics, {count(result.artifacts, 'artifact')}"
    )
    if result.left:
        note(f"warning: not pushed, and in the local store alone: {', '.join(result.left)}")
    return 0


@click.command("ui")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N",
    help="The port on this machine: 5000 by default, or the next free one.",
)  # fmt: skip
@project_options
def ui_command(*, source: ProjectSource, port: int | None) -> int:
    """Serve MLflow's pages for the store of this project, until Ctrl-C. Only this machine can open
    them. If you are connected by ssh, the command prints how to forward the port to your machine.
    If the newest run is tracked on a machine by ssh, MLflow runs there, and ssh forwards its port.

    Exit codes: those of MLflow; 1 error (nothing was tracked here, or MLflow is not installed).
    """
    session = source.session()
    remote = store_elsewhere(session) if session.in_project else None
    if remote is not None:
        here, (host, store) = free_port(port), remote
        note(f"starting MLflow on {host}")
        with suppress(KeyboardInterrupt):  # how a user ends it
            store.serve_pages(here, lambda: show(page_url(here)))
    else:
        pages = tracking_pages(session, port, os.environ)
        show(pages.url)
        if pages.tunnel is not None:
            note(f"on your own machine: {pages.tunnel}")
        sys.stdout.flush()
        os.execv(pages.argv[0], pages.argv)  # noqa: S606  signals and the exit code are MLflow's
    return 0
