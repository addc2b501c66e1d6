"""`sgpu run`."""

import itertools
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import click

from sgpu_decl.api import current_folder
from sgpu_decl.cli.apply_flow import ApplyScreen
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.file_options import set_option
from sgpu_decl.cli.options import (
    ProjectSource,
    lock_option,
    output_option,
    rank_option,
    read_ranks,
    whole,
)
from sgpu_decl.cli.terminal_output import note
from sgpu_decl.errors import SgpuError, Usage
from sgpu_decl.model.plan_options import ON_ACTIVE, PlanOptions


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument(
    "typed", nargs=-1, required=True, metavar="COMMAND...", shell_complete=completed_by("files")
)
@click.option(
    "-g", "--gpus", callback=whole(1), default="1", show_default=True, metavar="N",
    help="The number of GPUs, with one rank on each.",
)  # fmt: skip
@click.option(
    "--type", "type_", metavar="TYPE",
    help="The type of GPU, as in `type`: any by default, and CPU on a machine without one.",
)  # fmt: skip
@click.option(
    "--name", metavar="NAME", help="The name of the run; by default the name of the script."
)
@click.option("--save", metavar="FILE", help="Write the run to a YAML file, and run that file.")
@set_option
@lock_option
@click.option(
    "--on-active", type=click.Choice(ON_ACTIVE), help="What to do if the run is still active."
)
@click.option("-y", "--auto-approve", is_flag=True, help="Do not ask for approval.")
@click.option("--detach", is_flag=True, help="Return when it is launched.")
@rank_option(help="The rank whose output is shown: 0 by default.")
@output_option()
def command(
    *,
    source: ProjectSource,
    typed: tuple[str, ...],
    gpus: int,
    type_: str | None,
    name: str | None,
    save: str | None,
    on_active: str | None,
    auto_approve: bool,
    detach: bool,
    rank: str | None,
    output: str,
) -> int:
    """Run COMMAND on GPUs, without a YAML file. sgpu plans, applies and records it like any run.

    COMMAND is a program with its arguments, such as `python train.py --lr 1e-3`, or an entrypoint:
    `train.py --lr 1e-3`, or `train.py:main lr=0.1` for a function. Write options of sgpu before it.
    If the script names packages and a Python version in a header (PEP 723), the run uses them as
    its `env`. Each call starts a new attempt.

    Exit codes: 0 ok, 1 error, 3 locked state, 5 the run failed, 130 interrupted.
    """
    from sgpu_decl.api.command_run import command_run, name_of
    from sgpu_decl.cli.other_names import check_program

    if detach and rank is not None:
        raise click.UsageError("`--detach` follows no run: leave out `--rank`")
    if typed[0].endswith((".yaml", ".yml")):
        raise Usage(
            f"`{typed[0]}` is a file, not a command",
            hint=f"`sgpu apply {shlex.quote(typed[0])}` runs what it describes",
        )
    check_program(typed, lambda word: (source.project or current_folder()).joinpath(word).exists())
    if any(path == "name" for path, _ in source.sets):
        raise click.UsageError("`--set` does not set `name`: use `--name`")
    run_name = name if name is not None else name_of(typed)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", run_name):
        raise click.UsageError(
            f"`{run_name}` is not a name for a run: letters, digits, `_` and `-`, at most 100"
        )
    ranks = read_ranks(rank or "0")
    header = not any(_declares_environment(path) for path, _ in source.sets)
    sets = source.sets if save is not None else ()
    if save is not None:
        _check_savable(Path(save))
    described = source if save is None else replace(source, sets=())
    for number in itertools.count(2):
        text = command_run(typed, name=run_name, gpus=gpus, type_=type_, sets=sets, header=header)
        session = described.described(text, save)
        try:
            session.check_undeclared(run_name)
            break
        except SgpuError as error:
            if name is not None or error.code != "name_declared":
                raise
            session.close()
            run_name = f"{name_of(typed)[:90]}-{number}"
            note(f"note: {error.message}: this run is `{run_name}`")
    selection = PlanOptions(rerun=(run_name,), on_active=on_active, removes=False)

    def write() -> None:
        if save is not None:
            _write(Path(save), text)

    screen = ApplyScreen(
        session=session, on_approval=write,
        auto=auto_approve, ranks=ranks, detach=detach, json=output == "json",
        question="run this?", unattended="look at it and run it with `-y`",
        replacing=f"stop it first with `sgpu cancel {run_name}`, or use `--on-active queue`",
    )  # fmt: skip
    return screen.carry_out(selection)


def _declares_environment(path: str) -> bool:
    """Whether a field of `--set` says what the header of a script may say too."""
    block, _, field = path.partition(".")
    return block == "env" and field not in ("variables", "secrets", "python") and "." not in field


def _check_savable(file: Path) -> None:
    """Check that a run file may be written before planning costs anything. The paths in it are
    relative to its folder, so it lies where the command was typed."""
    if file.suffix not in (".yaml", ".yml"):
        raise Usage(f"`{file}` is no name for a run file", hint="its name ends in `.yaml`")
    if file.parent.resolve() != current_folder().resolve():
        raise Usage(
            f"`{file}` is not in the current folder",
            hint="a run file looks for its code in its own folder: name a file without a folder, "
            "or call this in the other folder",
        )
    if os.path.lexists(file):
        raise _exists(file)


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise _exists(file) from None
    note(f"wrote `{file}`: `sgpu apply {shlex.quote(str(file))}` runs it too")


def _exists(file: Path) -> SgpuError:
    return SgpuError(
        f"there is a `{file}` already",
        hint="nothing was written: name another file",
        code="exists",
    )
