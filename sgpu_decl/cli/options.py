"""Options that several commands share."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sgpu_decl.cli.terminal_output import show
from sgpu_decl.errors import NotFound

if TYPE_CHECKING:
    from sgpu_decl.api import Location, Patience, PlanOptions, Prepared, Session
    from sgpu_decl.errors import Locked
    from sgpu_decl.model.known_environment import Environment

__all__ = [
    "ON_ACTIVE",
    "Choosing",
    "FileSource",
    "Where",
    "choosing_options",
    "file_argument",
    "lock_option",
    "output_option",
    "parallelism_option",
    "read_duration",
    "read_ranks",
    "refuse_ranks",
    "source_options",
    "where_options",
    "whole",
]

Command = TypeVar("Command", bound=Callable[..., Any])

ON_ACTIVE = ("error", "replace", "queue", "parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which project and target a command is about, and for how many seconds one that writes the
    state waits for its lock."""

    target: str | None = None
    project: str | None = None
    lock_timeout: float = 0

    def location(self, file: str | None = None) -> "Location":
        from sgpu_decl.api import Location

        return Location(
            file=Path(file) if file is not None else None,
            project=Path(self.project) if self.project is not None else None,
            target=self.target,
        )

    def session(self, file: str | None = None) -> "Session":
        """Open the project, and say on stderr what is worth knowing about where its state lies."""
        from sgpu_decl.api import Session

        return _noted(Session.open(self.location(file), _patience(self.lock_timeout)))

    def saved(self, plan: Path) -> "tuple[Session, Prepared]":
        """Load a saved plan, and open the project that it was made for."""
        from sgpu_decl.api import Session

        session, saved = Session.open_saved(plan, self.location(), _patience(self.lock_timeout))
        return _noted(session), saved

    def recorded(self) -> "Session":
        """Open the project for a command that reads no file, so that nothing else would notice that
        there is no project, or no such target."""
        session = self.session()
        session.check_project()
        session.check_target()
        return session

    def environment(self, name: str) -> "Environment":
        """The environment that is named; the project is opened where the name needs it."""
        from sgpu_decl.api import environment

        return environment(name, self.location())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(Where):
    """The same for a command that reads a file, with what overrides values in it."""

    variables: tuple[tuple[str, str], ...] = ()
    sets: tuple[tuple[str, str], ...] = ()

    @property
    def overrides(self) -> bool:
        return bool(self.variables or self.sets)

    def location(self, file: str | None = None) -> "Location":
        location = Where.location(self, file)  # `super()` fails in a class with slots
        return replace(location, variables=self.variables, sets=self.sets)


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


_target_option = click.option(
    "-t", "--target", metavar="NAME", help="Use this target, with its overrides and its state."
)
_project_option = click.option(
    "--project", metavar="DIR", help="The project folder; its state is in `DIR/.sgpu/`."
)


def where_options(command: Command) -> Command:
    """`-t` and `--project`, handed to the command as one `where`."""

    @_target_option
    @_project_option
    @functools.wraps(command)
    def gathered(*, target: str | None, project: str | None, **rest: object) -> object:
        return command(where=Where(target=target, project=project), **rest)

    return gathered  # type: ignore[return-value]  # click calls it by keyword


def source_options(command: Command) -> Command:
    """`-t`, `--var`, `--set` and `--project` of a command that reads a file, as one `where`."""

    @_target_option
    @click.option(
        "--var",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="Set a variable of the file (repeatable).",
    )
    @click.option(
        "--set",
        "set_",
        multiple=True,
        metavar="PATH=VALUE",
        callback=_pairs,
        help="Override a field of the file, such as `args.lr=0.1` (repeatable).",
    )
    @_project_option
    @functools.wraps(command)
    def gathered(
        *,
        target: str | None,
        var: tuple[tuple[str, str], ...],
        set_: tuple[tuple[str, str], ...],
        project: str | None,
        **rest: object,
    ) -> object:
        where = FileSource(target=target, variables=var, sets=set_, project=project)
        return command(where=where, **rest)

    return gathered  # type: ignore[return-value]  # click calls it by keyword


def lock_option(command: Command) -> Command:
    """`--lock-timeout`, for commands that write the state; below `where_options`."""

    @click.option(
        "--lock-timeout",
        default="60s",
        show_default=True,
        metavar="D",
        help="How long to wait while another sgpu holds the lock of the state.",
    )
    @functools.wraps(command)
    def patient(*, where: Where, lock_timeout: str, **rest: object) -> object:
        return command(where=replace(where, lock_timeout=read_duration(lock_timeout)), **rest)

    return patient  # type: ignore[return-value]  # click calls it by keyword


def _noted(session: "Session") -> "Session":
    for note in session.notes:
        show(f"note: {note}", err=True)
    return session


def _patience(seconds: float) -> "Patience":
    """Wait for so many seconds, and name each holder of the lock once."""
    from sgpu_decl.api import Patience

    announced: set[str | None] = set()

    def say(refused: "Locked") -> None:
        if refused.held not in announced:
            announced.add(refused.held)
            show(f"note: {refused.message}: waiting up to {seconds:g} s", err=True)

    return Patience(seconds=seconds, on_wait=say)


def output_option(*formats: str) -> Callable[[Command], Command]:
    """`-o`, with `text` first; the command gets `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", *formats]),
        default="text",
        show_default=True,
        help="The format of the output.",
    )


def file_argument(command: Command) -> Command:
    return click.argument("file", required=False, metavar="[FILE]")(command)


def choosing_options(command: Command) -> Command:
    """`--rerun`, `--select` and so on, handed to the command as one `choosing`."""

    @click.option(
        "--rerun",
        multiple=True,
        metavar="ADDRESS",
        help="Relaunch these runs even if they are up to date (repeatable; globs).",
    )
    @click.option(
        "--select", multiple=True, metavar="ADDRESS", help="Plan only these (repeatable; globs)."
    )
    @click.option(
        "--exclude",
        multiple=True,
        metavar="ADDRESS",
        help="Skip these (repeatable; globs).",
    )
    @click.option(
        "--retry-failed", is_flag=True, help="Relaunch runs whose last attempt failed in user code."
    )
    @click.option(
        "--on-active",
        type=click.Choice(ON_ACTIVE),
        help="What to do with a changed run that is still active. Wins over `on_active`.",
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


def whole(least: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """The callback of an option that takes a whole number of at least `least`."""

    def read(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or int(text) < least:
            raise click.BadParameter(
                f"`{text}` is no whole number of at least {least}", param=parameter
            )
        return int(text)

    return read


def parallelism_option(command: Command) -> Command:
    return click.option(
        "--parallelism",
        callback=whole(1),
        default="8",
        show_default=True,
        metavar="N",
        help="How many runs to launch at the same time.",
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


def refuse_ranks(ranks: tuple[int, ...] | None, worlds: "Sequence[int]") -> None:
    """Return if one of several runs, of which the world sizes are given, has a rank that is asked
    for; of those that have not started nothing is known.

    Raises:
        NotFound: none has.
    """
    if ranks is None or not worlds or min(ranks) < max(worlds):
        return
    raise NotFound(
        f"there is no rank {min(ranks)}: the ranks are 0 to {max(worlds) - 1}",
        hint="give one of them, or `all`",
    )


def _pairs(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{value}` is not of the form `name=value`", param=parameter)
        if any(name == given and text != other for given, other in pairs):
            raise click.BadParameter(f"`{name}` is given twice, with two values", param=parameter)
        pairs.append((name, text))
    return tuple(pairs)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)\s*", re.ASCII)


def read_duration(text: str) -> float:
    """Seconds of a duration such as `90s`, `1h30m` or `7d`; a plain number is seconds.

    Raises:
        click.UsageError: the text is no duration.
    """
    plain = text.strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", plain, re.ASCII):
        return float(plain)
    parts = _PART.findall(plain)
    if not parts or _PART.sub("", plain):
        raise click.UsageError(f"`{text}` is no duration: give one such as `90s`, `1h30m` or `7d`")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
