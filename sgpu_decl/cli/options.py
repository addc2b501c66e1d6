"""Options that several commands share."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sgpu_decl.api import Location, Patience, Session
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.next_steps import remember
from sgpu_decl.cli.terminal_output import show
from sgpu_decl.diagnostics import amounts
from sgpu_decl.errors import Locked, NotFound, Usage
from sgpu_decl.frozen_dataclass import dataclass

if TYPE_CHECKING:
    from sgpu_decl.api import Prepared
    from sgpu_decl.model.environment import Environment
    from sgpu_decl.model.jsonable import Spec

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSource(Location):
    """The options that choose the project of a command, and for how many seconds a command that
    writes the state waits for its lock."""

    lock_timeout: float = 0

    def session(self, file: str | None = None) -> "Session":
        """Open the project until the command ends, and show the notes on where its state lies."""
        session = _opened(Session.open(self._of(file), _patience(self.lock_timeout)))
        if self.offline and session.in_project:
            _note_copy(session)
        return session

    def described(self, text: str, file: str | None = None) -> "Session":
        """Open the project of a run that no file describes yet. `text` is what its file holds if
        `file` is written, or would hold."""
        patience = _patience(self.lock_timeout)
        return _opened(Session.for_text(text, self._of(file), patience))

    def saved(self, plan: Path) -> "tuple[Session, Prepared]":
        """Load a saved plan, and open the project that it was made for."""
        session, prepared = Session.open_saved(plan, self, _patience(self.lock_timeout))
        return _opened(session), prepared

    def recorded(self, file: str | None = None) -> "Session":
        """Open the project, of `file` if one is named, for a command that reads no file. Only these
        checks notice that the project or the target does not exist."""
        session = self.session(file)
        session.check_project()
        session.check_target()
        return session

    def environment(self, name: str) -> "Environment":
        """The environment of that name. The project is opened if the name needs it."""
        with Session.open(self) as session:
            return session.environment(name)

    def _of(self, file: str | None) -> "ProjectSource":
        return self if file is None else replace(self, file=Path(file))


target_option = click.option(
    "-t",
    "--target",
    metavar="NAME",
    shell_complete=completed_by("targets"),
    help="Use this target, with its overrides and its state; `default` means none.",
)
project_option = click.option(
    "--project",
    type=Path,
    metavar="DIR",
    shell_complete=completed_by("folders"),
    help="The project folder; its state is in `DIR/.sgpu/`.",
)


def project_options(command: Command) -> Command:
    """`-t` and `--project`, handed to the command as one `source`."""

    @target_option
    @project_option
    @functools.wraps(command)
    def with_source(*, target: str | None, project: Path | None, **rest: object) -> object:
        return command(source=ProjectSource(target=target, project=project), **rest)

    return with_source  # type: ignore[return-value]  # click calls it by keyword


def lock_option(command: Command) -> Command:
    """`--lock-timeout`, for commands that write the state; below `project_options`."""

    @click.option(
        "--lock-timeout",
        default="60s",
        show_default=True,
        metavar="D",
        help="How long to wait while another sgpu holds the lock of the state.",
    )
    @functools.wraps(command)
    def with_timeout(*, source: ProjectSource, lock_timeout: str, **rest: object) -> object:
        return command(source=replace(source, lock_timeout=read_duration(lock_timeout)), **rest)

    return with_timeout  # type: ignore[return-value]  # click calls it by keyword


def offline_option(command: Command) -> Command:
    """`--offline`, for commands that only read; below `project_options` or `file_options`."""

    @click.option(
        "--offline",
        is_flag=True,
        help="Use this machine's copy of the shared state; do not contact its store.",
    )
    @functools.wraps(command)
    def with_offline(*, source: ProjectSource, offline: bool, **rest: object) -> object:
        return command(source=replace(source, offline=offline), **rest)

    return with_offline  # type: ignore[return-value]  # click calls it by keyword


def _note_copy(session: "Session") -> None:
    """Say of when the state is that is read without its store."""
    last = session.state.last_read()
    if last is None:
        show("note: `--offline` changes nothing: the state lies on this machine", err=True)
    else:
        number, at = last
        show(
            f"note: this is the state of {at:%Y-%m-%d %H:%M:%S} UTC, after entry {number}; later "
            "entries are missing",
            err=True,
        )


def _opened(session: "Session") -> "Session":
    click.get_current_context().with_resource(session)
    remember(session)
    for note in session.notes:
        show(f"note: {note}", err=True)
    return session


def _patience(seconds: float) -> "Patience":
    """Wait for so many seconds, and name each holder of the lock once."""
    announced: set[str | None] = set()

    def say(refused: Locked) -> None:
        if refused.lock not in announced:
            announced.add(refused.lock)
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


def limit_option(command: Command) -> Command:
    """`--limit`, of a plan in Markdown; the command gets `limit`, None where it is not given."""

    def read(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        if text is None or text == "0":
            return None if text is None else 0
        from sgpu_decl.views.plan_markdown import LEAST_LIMIT

        if not re.fullmatch(r"\d{1,12}", text, re.ASCII) or int(text) < LEAST_LIMIT:
            raise click.BadParameter(
                f"`{text}` is no limit: give at least {LEAST_LIMIT} bytes, or 0 for no limit",
                param=parameter,
            )
        return int(text)

    return click.option(
        "--limit",
        metavar="BYTES",
        callback=read,
        help="Leave out details until the Markdown fits: 65000 by default, 0 for no limit.",
    )(command)


def whole(least: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """The callback of an option that takes a whole number of at least `least`."""

    def read(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or int(text) < least:
            raise click.BadParameter(
                f"`{text}` is not a whole number of at least {least}", param=parameter
            )
        return int(text)

    return read


def read_ranks(text: str) -> tuple[int, ...] | None:
    """`3` is that rank alone, `all` is `None`: no limit.

    Raises:
        click.UsageError: neither a rank nor `all`.
    """
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise click.UsageError(f"`{text}` is not a rank: give a number or `all`")
    return (int(text),)


def rank_option(**options: Any) -> Callable[[Command], Command]:
    """`--rank`; the command gets `rank`."""
    return click.option("--rank", metavar="N|all", **options)


def rank_count(spec: "Spec") -> int | None:
    """How many ranks a run of this spec has; the driver of a Ray cluster is the only one."""
    gpus = 1 if spec.fields.get("ray") is not None else spec.fields.get("gpus")
    return gpus if isinstance(gpus, int) else None


def refuse_ranks(ranks: tuple[int, ...] | None, worlds: "Sequence[int]") -> None:
    """Refuse ranks that none of several runs has.

    Args:
        ranks: the ranks that the user asks for, None for all.
        worlds: the world sizes of the runs that have started.

    Raises:
        NotFound: no run has such a rank.
    """
    if ranks is None or not worlds or min(ranks) < max(worlds):
        return
    raise NotFound(
        f"there is no rank {min(ranks)}: the ranks are 0 to {max(worlds) - 1}",
        hint="give one of them, or `all`",
    )


def read_duration(text: str) -> float:
    """Seconds of a duration such as `90s`, `1h30m` or `7d`; a plain number is seconds.

    Raises:
        Usage: the text is no duration.
    """
    seconds = amounts.read_duration(text)
    if seconds is None:
        raise Usage(f"`{text}` is not a duration", hint=amounts.duration_hint(text))
    return seconds
