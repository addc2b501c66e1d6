"""`sgpu dev`: workspace."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click

from sgpu_decl.cli.commands import DEV_COMMANDS, LazyGroup
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer_exactly, note, show_exactly
from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import SgpuError
from sgpu_decl.scratch_folders import scratch_folder
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.accelerators import ACCELERATORS

command = LazyGroup(DEV_COMMANDS, "dev", "Run a local emulator of a Databricks workspace.")


def _capacity(
    _: click.Context, __: click.Parameter, entries: "tuple[str, ...]"
) -> "dict[str, int]":
    """`TYPE=N`, as often as it is given."""
    capacity = {}
    for entry in entries:
        name, _equals, number = entry.partition("=")
        if name not in ACCELERATORS or not number.isdigit():
            names = ", ".join(ACCELERATORS)
            raise click.BadParameter(f"`{entry}` is not TYPE=N with a type of {names}")
        capacity[name] = int(number)
    return capacity


def _interpreter(_: click.Context, __: click.Parameter, text: str) -> str:
    """The absolute path of a program."""
    path = os.path.abspath(text)
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise click.BadParameter(f"`{text}` is not an executable program")
    return path


@click.command("workspace")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True,
    help="Port to listen on, on this machine; 0 takes a free port.",
)  # fmt: skip
@click.option("--root", metavar="DIR", help="Keep the workspace in DIR, also after the end.")
@click.option(
    "--gpus", metavar="TYPE=N", multiple=True, callback=_capacity,
    help="The number of GPUs of a type (GPU_1xA10=4). Other types have no limit.",
)  # fmt: skip
@click.option(
    "--python", metavar="FILE", default=sys.executable, callback=_interpreter,
    help="The Python of the nodes, with the packages that runs need; by default sgpu's own.",
)  # fmt: skip
@click.option(
    "--wheels", metavar="DIR", type=click.Path(exists=True, file_okay=False),
    help="Install the dependencies that environments declare from the wheels in DIR.",
)  # fmt: skip
@click.option(
    "--profile", metavar="FILE",
    help="Behave like the workspace that `sgpu doctor -t TARGET` measured.",
)  # fmt: skip
@click.option(
    "--generous", is_flag=True,
    help="Give nodes variables that real nodes may lack: DATABRICKS_HOST, DATABRICKS_TOKEN, "
    "MLFLOW_TRACKING_TOKEN and MLFLOW_EXPERIMENT_ID.",
)  # fmt: skip
@output_option()
def workspace_command(
    *,
    port: int,
    root: str | None,
    gpus: dict[str, int],
    python: str,
    wheels: str | None,
    profile: str | None,
    generous: bool,
    output: str,
) -> int:
    """Serve an emulated Databricks workspace on this machine, until Ctrl-C or SIGTERM.

    The emulator executes submitted runs as processes of this machine.

    The command prints the variables to export, so that the SDK and sgpu find the workspace. At the
    end the emulator deletes the content of the workspace, unless --root names a folder.
    """
    execution = ExecutionSettings(
        capacity=gpus, python=python, generous=generous,
        wheels=Path(wheels).absolute() if wheels else None,
    )  # fmt: skip
    if find_spec("mlflow") is None:
        raise SgpuError(
            "the emulator keeps the experiments of a workspace in MLflow, which is not installed",
            hint=f"install it with `{extra_command('emulator')}`",
            code="sdk_missing",
        )
    measured = None
    if profile is not None:
        from sgpu_decl.api import load_profile

        measured = load_profile(Path(profile), profile)
        if measured.not_emulated:
            ids = ", ".join(f"`{item}`" for item in measured.not_emulated)
            note(f"note: the emulator cannot follow what `{profile}` says of {ids}")

    with (
        _stop_signal() as stop_descriptor,
        scratch_folder("emulator") as spare,
        WorkspaceServer(
            Path(root or spare).absolute(), port=port, execution=execution, profile=measured
        ) as server,
    ):
        environment = {"DATABRICKS_HOST": server.url, "DATABRICKS_TOKEN": server.token()}
        if output == "json":
            answer_exactly(
                {"url": server.url, "root": str(server.root), "environment": environment}
            )
        else:
            for name, value in environment.items():
                show_exactly(f"export {name}={value}")
        note(f"a workspace in `{server.root}` listens at {server.url}; Ctrl-C stops it")
        os.read(stop_descriptor, 1)
        note("stopping")
    return 0


@contextmanager
def _stop_signal() -> "Iterator[int]":
    """A descriptor that has something to read once the command is asked to stop."""
    stop_descriptor, signals = os.pipe()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: _write(signals)) for number in numbers]
    try:
        yield stop_descriptor
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        os.close(stop_descriptor)
        os.close(signals)


def _write(descriptor: int) -> None:
    os.write(descriptor, b".")
