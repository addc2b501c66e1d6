"""The words after a command: files, and names of runs."""

import os
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.terminal_output import note
from sgpu_decl.errors import NotFound

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.cli.options import ProjectSource


def file_and_names(words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The file among the words, if there is one, and the names.

    Raises:
        click.UsageError: two of them are files.
        NotFound: the file does not exist.
    """
    files = [word for word in words if is_path(word)]
    if len(files) > 1:
        raise click.UsageError(f"`{files[1]}` is a second file: name one")
    if files and not os.path.isfile(files[0]):
        raise NotFound(
            f"there is no file `{files[0]}`",
            hint="name a run or project file that exists, or runs by their names",
        )
    return (files[0] if files else None), tuple(word for word in words if word not in files)


def is_path(word: str) -> bool:
    """Whether an argument is a path. A name holds no dot, an address one, after its kind. The
    brackets of a matrix cell may hold anything."""
    text = word.partition("[")[0]
    dotted = "." in text.removeprefix("run.") and os.path.isfile(word)
    return dotted or text.endswith((".yaml", ".yml")) or "/" in text


def open_named(
    source: "ProjectSource", words: tuple[str, ...]
) -> "tuple[Session, tuple[str, ...]]":
    """Open the project of a command about runs, and return the names of the runs: those that are
    given, else those of the file that is given, else that of the latest attempt, and say which.

    Raises:
        NotFound: there is no project, no file of that name, or nothing was launched.
    """
    file, names = file_and_names(words)
    session = source.recorded(file)
    if file is not None and not names:
        return session, session.runs.names_of_file()
    if not names:
        ref, others = session.runs.latest()
        note(f"`{ref}`, the latest of {others + 1} runs" if others else f"`{ref}`, the only run")
        names = (str(ref),)
    return session, names
