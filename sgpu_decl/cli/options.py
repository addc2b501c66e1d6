"""Options that several commands share."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sgpu_decl.api import Location, PlanOptions, Session
    from sgpu_decl.environments.known.environment import Environment

__all__ = [
    "ON_ACTIVE",
    "Choosing",
    "Where",
    "choosing_options",
    "file_argument",
    "output_option",
    "parallelism_option",
    "read_duration",
    "read_ranks",
    "where_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])

ON_ACTIVE = ("error", "replace", "queue", "parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which project, target and overrides the command line names."""

    target: str | None
    variables: tuple[tuple[str, str], ...]
    sets: tuple[tuple[str, str], ...]
    project: str | None

    def location(self, file: str | None = None) -> "Location":
        from sgpu_decl.api import Location

        return Location(
            file=Path(file) if file is not None else None,
            project=Path(self.project) if self.project is not None else None,
            target=self.target,
            variables=self.variables,
            sets=self.sets,
        )

    def session(self, file: str | None = None) -> "Session":
        """Open the project, and say on stderr what is worth knowing about where its state lies."""
        from sgpu_decl.api import Session

        session = Session.open(self.location(file))
        for note in session.notes:
            click.echo(f"note: {note}", err=True)
        return session

    def recorded(self) -> "Session":
        """Open the project for a command that reads no file, so that nothing else would notice a
        target that does not exist."""
        session = self.session()
        session.check_target()
        return session

    def environment(self, name: str) -> "Environment":
        """The environment that is named; the project is opened where the name needs it."""
        from sgpu_decl.api import environment

        return environment(name, self.location())


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """Which of the runs are planned, and how; globs as they were typed."""

    rerun: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    retry_failed: bool = False
    on_active: str | None = None

    @property
    def given(self) -> bool:
        return self != Choosing()

    def options(self, *, destroy: bool = False) -> "PlanOptions":
        from sgpu_decl.api import PlanOptions

        return PlanOptions(
            rerun=self.rerun,
            select=self.select,
            exclude=self.exclude,
            retry_failed=self.retry_failed,
            on_active=self.on_active,
            destroy=destroy,
        )


def where_options(command: Command) -> Command:
    """`-t`, `--var`, `--set` and `--project`, handed to the command as one `where`."""

    @click.option("-t", "--target", metavar="NAME", help="Use the overrides of this target.")
    @click.option(
        "--var", multiple=True, metavar="K=V", callback=_pairs, help="Give a variable a value."
    )
    @click.option(
        "--set",
        "set_",
        multiple=True,
        metavar="PATH=V",
        callback=_pairs,
        help="Override one field, such as `args.lr=0.1`.",
    )
    @click.option(
        "--project", metavar="DIR", help="The project's folder, where its state lies in `.sgpu/`."
    )
    @functools.wraps(command)
    def gathered(
        *,
        target: str | None,
        var: tuple[tuple[str, str], ...],
        set_: tuple[tuple[str, str], ...],
        project: str | None,
        **rest: object,
    ) -> object:
        where = Where(target=target, variables=var, sets=set_, project=project)
        return command(where=where, **rest)

    return gathered  # type: ignore[return-value]  # click calls it by keyword


def output_option(*formats: str) -> Callable[[Command], Command]:
    """`-o`, with `text` first; the command gets `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", *formats]),
        default="text",
        show_default=True,
        help="The form of the answer.",
    )


def file_argument(command: Command) -> Command:
    return click.argument("file", required=False, metavar="[FILE]")(command)


def choosing_options(command: Command) -> Command:
    """`--rerun`, `--select` and so on, handed to the command as one `choosing`."""

    @click.option(
        "--rerun", multiple=True, metavar="ADDRESS", help="Launch these in any case (globs)."
    )
    @click.option("--select", multiple=True, metavar="ADDRESS", help="Only these (globs).")
    @click.option("--exclude", multiple=True, metavar="ADDRESS", help="Leave these out (globs).")
    @click.option("--retry-failed", is_flag=True, help="Launch again what its code failed.")
    @click.option(
        "--on-active",
        type=click.Choice(ON_ACTIVE),
        help="What to do where a changed run is still active.",
    )
    @functools.wraps(command)
    def gathered(
        *,
        rerun: tuple[str, ...],
        select: tuple[str, ...],
        exclude: tuple[str, ...],
        retry_failed: bool,
        on_active: str | None,
        **rest: object,
    ) -> object:
        choosing = Choosing(
            rerun=rerun,
            select=select,
            exclude=exclude,
            retry_failed=retry_failed,
            on_active=on_active,
        )
        return command(choosing=choosing, **rest)

    return gathered  # type: ignore[return-value]  # click calls it by keyword


def parallelism_option(command: Command) -> Command:
    return click.option(
        "--parallelism",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        metavar="N",
        help="How many changes to carry out at once.",
    )(command)


def read_ranks(text: str) -> tuple[int, ...] | None:
    """`3` is that rank alone, `all` is `None`: no limit.

    Raises:
        click.UsageError: neither a rank nor `all`.
    """
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise click.UsageError(f"`{text}` is no rank: give a number or `all`")
    return (int(text),)


def _pairs(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{value}` is not of the form `name=value`", param=parameter)
        pairs.append((name, text))
    return tuple(pairs)


def read_duration(text: str) -> float:
    """Seconds of a duration such as `90s`, `10m` or `7d`.

    Raises:
        click.UsageError: the text is no duration.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)?", text.strip(), re.ASCII)
    if match is None:
        raise click.UsageError(f"`{text}` is no duration: give one such as `90s`, `10m` or `7d`")
    sizes = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
    return float(match[1]) * sizes[match[2] or "s"]
