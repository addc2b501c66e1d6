"""`sgpu dev`: workspace."""

import os
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.commands import DEV_COMMANDS, LazyGroup
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.showing import answer, note
from sgpu_decl.model.gpu import ACCELERATORS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["command", "workspace_command"]

command = LazyGroup(DEV_COMMANDS, "dev", "Try runs out without the real platform.")


def _capacity(_: click.Context, __: click.Parameter, given: "tuple[str, ...]") -> "dict[str, int]":
    """`TYPE=N`, as often as it is given."""
    found = {}
    for entry in given:
        name, _equals, number = entry.partition("=")
        if name not in ACCELERATORS or not number.isdigit():
            known = ", ".join(ACCELERATORS)
            raise click.BadParameter(f"`{entry}` is not TYPE=N with a type of {known}")
        found[name] = int(number)
    return found


@click.command("workspace")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True,
    help="Where to listen on this machine; 0 takes a free port.",
)  # fmt: skip
@click.option("--root", metavar="DIR", help="Keep the workspace there, for the next time too.")
@click.option(
    "--gpus", metavar="TYPE=N", multiple=True, callback=_capacity,
    help="How many GPUs there are of an accelerator type (GPU_1xA10=4); of others, enough.",
)  # fmt: skip
@click.option(
    "--python", metavar="FILE", default=sys.executable,
    help="The interpreter of nodes, with what runs need installed; by default that of sgpu.",
)  # fmt: skip
@output_option()
def workspace_command(
    *, port: int, root: str | None, gpus: dict[str, int], python: str, output: str
) -> int:
    """Serve a Databricks workspace on this machine, until Ctrl-C or SIGTERM.

    What is submitted to it is executed, as processes here.

    Prints what to export, so that the SDK and sgpu find it. Without --root it is gone in the end.
    """
    from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer

    execution = ExecutionSettings(capacity=gpus, python=os.path.abspath(python))

    with (
        _stop_signal() as stopped,
        tempfile.TemporaryDirectory(prefix="sgpu-workspace-") as spare,
        WorkspaceServer(Path(root or spare).absolute(), port=port, execution=execution) as server,
    ):
        environment = {"DATABRICKS_HOST": server.url, "DATABRICKS_TOKEN": server.token()}
        if output == "json":
            answer({"url": server.url, "root": str(server.root), "environment": environment})
        else:
            for name, value in environment.items():
                click.echo(f"export {name}={value}")
        note(f"a workspace in `{server.root}` listens at {server.url}; Ctrl-C stops it")
        os.read(stopped, 1)
        note("stopping")
    return 0


@contextmanager
def _stop_signal() -> "Iterator[int]":
    """A descriptor that has something to read once the command is asked to stop."""
    stopped, asked = os.pipe()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: _write(asked)) for number in numbers]
    try:
        yield stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        os.close(stopped)
        os.close(asked)


def _write(descriptor: int) -> None:
    os.write(descriptor, b".")
