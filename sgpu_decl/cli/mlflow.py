"""`sgpu mlflow`: commands about the MLflow runs of attempts."""

from dataclasses import asdict

import click

from sgpu_decl.cli.commands import MLFLOW_COMMANDS, LazyGroup
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note, show

__all__ = ["command", "sync_command"]


command = LazyGroup(MLFLOW_COMMANDS, "mlflow", "Look after the MLflow runs of attempts.")


@click.command("sync")
@click.argument("name", shell_complete=completed_by("runs"))
@click.option("--to", "server", metavar="URI", help="The server; by default the one it missed.")
@project_options
@output_option()
def sync_command(*, source: ProjectSource, name: str, server: str | None, output: str) -> int:
    """Push the MLflow run of an attempt from the local store to its server, which was away when the
    attempt started. NAME is `train` or `train#8`. Pushing twice creates nothing twice.

    Exit codes: 0 ok, 1 error (the server is still away, or there is nothing to push).
    """
    session = source.recorded()
    ref = session.runs.find_one(name)
    result = session.sync_tracking(ref, server)
    if output == "json":
        answer({"attempt": str(ref), **asdict(result), "left": list(result.left)})
        return 0
    from sgpu_decl.views.terminal import count

    show(result.run_id)
    note(
        f"{ref} is in {result.tracking_uri}: {count(result.runs, 'run')}, "
        f"{count(result.metrics, 'value')} of metrics, {count(result.artifacts, 'artifact')}"
    )
    if result.left:
        note(f"warning: not pushed, and in the local store alone: {', '.join(result.left)}")
    return 0
