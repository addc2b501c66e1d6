"""Options of commands that read a run file or a project file."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sgpu_decl.api import is_saved_plan
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import Command, ProjectSource, project_option, target_option, whole
from sgpu_decl.cli.run_names import is_path
from sgpu_decl.model.plan_options import ON_ACTIVE, PlanOptions


def file_options(command: Command) -> Command:
    """`-t`, `--project` and what changes a file, of a command that reads one, as one `source`."""

    @target_option
    @click.option(
        "--var",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="Set a variable of the file (repeatable).",
    )
    @click.option(
        "--var-file",
        "variable_files",
        type=Path,
        multiple=True,
        metavar="FILE",
        shell_complete=completed_by("files"),
        help="Set variables from a YAML or JSON file (repeatable; later ones win).",
    )
    @_sets_option("Override a field of the file, such as `args.lr=0.1` (repeatable).")
    @project_option
    @functools.wraps(command)
    def with_source(**values: Any) -> object:
        names = ("target", "variables", "variable_files", "sets", "project")
        source = ProjectSource(**{name: values.pop(name) for name in names})
        return command(source=source, **values)

    return with_source  # type: ignore[return-value]  # click calls it by keyword


def set_option(command: Command) -> Command:
    """`--set` and `--project` of a command that describes a run itself, as one `source`."""

    @_sets_option("Set a field of the run, such as `timeout=2h` (repeatable).")
    @project_option
    @functools.wraps(command)
    def with_source(
        *, sets: tuple[tuple[str, str], ...], project: Path | None, **values: Any
    ) -> object:
        return command(source=ProjectSource(sets=sets, project=project), **values)

    return with_source  # type: ignore[return-value]  # click calls it by keyword


def _sets_option(text: str) -> Callable[[Command], Command]:
    return click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="PATH=VALUE",
        callback=_pairs,
        shell_complete=completed_by("settable paths"),
        help=text,
    )


def strict_option(text: str) -> Callable[[Command], Command]:
    return click.option("--strict", is_flag=True, help=text)


def file_argument(command: Command) -> Command:
    return click.argument(
        "file", required=False, metavar="[FILE]", shell_complete=completed_by("files")
    )(command)


def words_argument(command: Command) -> Command:
    """A file and names of its runs, handed to the command as `file` and `names`."""

    @click.argument(
        "words",
        nargs=-1,
        metavar="[FILE] [NAME]...",
        shell_complete=completed_by("planned runs", "files"),
    )
    @functools.wraps(command)
    def with_words(*, words: tuple[str, ...], **values: Any) -> object:
        files = [word for word in words if is_path(word) or _names_file(word)]
        if len(files) > 1:
            raise click.UsageError(f"`{files[1]}` is a second file: name one")
        file = files[0] if files else None
        return command(file=file, names=tuple(word for word in words if word != file), **values)

    return with_words  # type: ignore[return-value]  # click calls it by keyword


def _names_file(word: str) -> bool:
    """Whether a word that is no path of a run file is a file all the same: it has a dot and is no
    address, or is there, or it is a saved plan. A file or folder that has the bare name of a run is
    not meant."""
    text = word.partition("[")[0]
    if "." in text:
        return os.path.isfile(word) or not text.startswith(("run.", "job."))

    return is_saved_plan(Path(word))


def selection_options(command: Command) -> Command:
    """`--rerun`, `--select` and so on, handed to the command as one `selection`."""

    @click.option(
        "--rerun",
        multiple=True,
        shell_complete=completed_by("planned runs"),
        metavar="ADDRESS",
        help="Relaunch these runs even if they are up to date (repeatable; globs).",
    )
    @click.option(
        "--select",
        multiple=True,
        shell_complete=completed_by("planned runs"),
        metavar="ADDRESS",
        help="Plan only these (repeatable; globs).",
    )
    @click.option(
        "--exclude",
        multiple=True,
        shell_complete=completed_by("planned runs"),
        metavar="ADDRESS",
        help="Skip these (repeatable; globs).",
    )
    @click.option(
        "--retry-failed", is_flag=True, help="Relaunch runs whose last attempt failed in user code."
    )
    @click.option(
        "--heal",
        is_flag=True,
        help="Also relaunch runs that a person cancelled. A proposal of such a plan counts only "
        "for `sgpu apply --heal --reviewed`.",
    )
    @click.option(
        "--on-active",
        type=click.Choice(ON_ACTIVE),
        help="What to do with a changed run that is still active. Overrides `on_active`.",
    )
    @functools.wraps(command)
    def with_selection(**values: Any) -> object:
        names = ("rerun", "select", "exclude", "retry_failed", "heal", "on_active")
        selection = PlanOptions(**{name: values.pop(name) for name in names})
        return command(selection=selection, **values)

    return with_selection  # type: ignore[return-value]  # click calls it by keyword


def parallelism_option(command: Command) -> Command:
    return click.option(
        "--parallelism",
        callback=whole(1),
        default="8",
        show_default=True,
        metavar="N",
        help="How many runs to launch at the same time.",
    )(command)


def _pairs(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{value}` is not of the form `name=value`", param=parameter)
        if pairs.setdefault(name, text) != text:
            raise click.BadParameter(f"`{name}` is given twice, with two values", param=parameter)
    return tuple(pairs.items())
