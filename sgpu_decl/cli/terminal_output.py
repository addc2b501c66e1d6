"""The terminal: whether it is one, whether it takes colour, and how a plan is put on it."""

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

import click

from sgpu_decl.cli.next_steps import complete, complete_error, complete_plan
from sgpu_decl.diagnostics.masks import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.errors import SgpuError
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.plan import Plan


def answer(data: "Json" = None, *, error: "SgpuError | None" = None) -> None:
    """The one object of `-o json`, on stdout. Tokens and passwords in it are masked."""
    from sgpu_decl.views.envelope import enveloped, shown_values

    data = shown_values(data)
    click.echo(enveloped(data, error=complete_error(error) if error is not None else None))


def answer_exactly(data: "Json") -> None:
    """`answer` for what others need unchanged: results, a state that can be pushed back, and the
    login of an emulator."""
    from sgpu_decl.views.envelope import enveloped

    click.echo(enveloped(data))


def show(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text of sgpu, with anything escaped that a terminal would obey, and tokens masked. All
    output of commands goes through here, except lines of ranks (`views.rank_output_text`) and what
    `show_exactly` prints."""
    from sgpu_decl.views.terminal import neutral

    click.echo(mask(neutral(text)), err=err, nl=nl, color=True)


def show_lines(text: str, linked: "Callable[[Sequence[str]], Iterable[str]]") -> None:
    """`show` for a table on a terminal that shows links. `linked` puts them into lines in which
    nothing else is obeyed any more."""
    from sgpu_decl.views.terminal import neutral

    click.echo("\n".join(linked(mask(neutral(text)).split("\n"))), color=True)


def show_exactly(text: str) -> None:
    """`show` for what `answer_exactly` gives, and for words that a shell puts on a command line."""
    from sgpu_decl.views.terminal import neutral

    click.echo(neutral(text), color=True)


def show_pieces(pieces: "Iterable[str]") -> None:
    """Print a long text of sgpu on stdout while it is made."""
    from sgpu_decl.views.terminal import neutral

    for piece in pieces:
        sys.stdout.write(mask(neutral(piece)))


def annotate(findings: "Sequence[Diagnostic]") -> None:
    """Print findings as workflow commands of GitHub Actions. It looks for their files in the
    repository, so paths begin there where a step runs in a folder of it."""
    from sgpu_decl.views.github_commands import render

    # https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    top = os.environ.get("GITHUB_WORKSPACE")

    def path(file: str) -> str:
        inside = os.path.relpath(file, top) if top else file
        return file if inside.startswith("..") else inside

    show(render(findings, path=path), nl=False)


def note(text: str) -> None:
    """Progress and messages go to stderr. Commands in them are complete."""
    show(complete(text), err=True)


def write_line(stream: TextIO, text: str) -> None:
    """Write lines unchanged and flush them: a rank's output keeps its colours even if stdout is no
    terminal."""
    stream.write(text + "\n")
    stream.flush()


def now() -> datetime:
    return datetime.now(UTC)


def interactive() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def takes_keys() -> bool:
    """Whether a program can fill the screen, and read keys: stdin and stdout are a terminal that
    knows how to move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def takes_colour(stream: TextIO) -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def terminal_width(stream: TextIO) -> int | None:
    """The columns of the terminal that `stream` is; `None` if it is none."""
    if not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    return os.get_terminal_size(stream.fileno()).columns or 80


def plan_text(plan: "Plan", stream: TextIO) -> str:
    """The plan as text, without its errors: the message that refuses it shows each of them with the
    line that it is about."""
    from dataclasses import replace

    from sgpu_decl.diagnostics.diagnostic import Severity
    from sgpu_decl.views.plan_text import render

    plan = complete_plan(
        replace(
            plan, checks=tuple(check for check in plan.checks if check.severity != Severity.ERROR)
        )
    )
    return render(plan, now=now(), colour=takes_colour(stream), width=terminal_width(stream))
