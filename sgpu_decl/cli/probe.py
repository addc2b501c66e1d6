"""`sgpu doctor probe`: runs on a platform that measure its nodes."""

import functools
import re
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sgpu_decl.cli.approval import confirm
from sgpu_decl.cli.options import read_duration, whole
from sgpu_decl.cli.terminal_output import note, show
from sgpu_decl.errors import Usage
from sgpu_decl.model.probe import ACTS, ProbeOptions
from sgpu_decl.views.doctor_text import probe_cost_text

if TYPE_CHECKING:
    from sgpu_decl.api import PlatformChecks, Session
    from sgpu_decl.model.doctor_finding import Finding

Command = TypeVar("Command", bound=Callable[..., Any])

_MOST_NODES = 2
_SECRET = re.compile(r"[\w.@-]{1,128}/[\w.@-]{1,128}", re.ASCII)
_USED_IN = {"--nodes": ("gang",), "--secret": ("report",), "--limit": ("retried", "gang")}
_SHORTEST = 3.0  # seconds: a third of it must be told from all of it
_OPTIONS = (
    click.option(
        "--nodes", callback=whole(1), metavar="N", help="Use 1 or 2 nodes together."
    ),
    click.option("--base", metavar="NAME", help="The `env.base` of the nodes."),
    click.option("--secret", metavar="SCOPE/KEY", help="Test whether nodes resolve this secret."),
    click.option("--patience", metavar="D", help="How long to wait for a GPU, 30m by default."),
    click.option(
        "--limit", metavar="D", help="The limit of the run that tests time limits; 60s by default."
    ),
    click.option(
        "--only", type=click.Choice(ACTS), multiple=True,
        help="Launch only this run (repeatable).",
    ),
)  # fmt: skip


def probe_options(command: Command) -> Command:
    """Add the options of a probe, handed to the command as one `options`."""

    @functools.wraps(command)
    def wrapped(
        *, nodes: int | None, base: str | None, secret: str | None, patience: str | None,
        limit: str | None, only: tuple[str, ...], **rest: Any,
    ) -> Any:  # fmt: skip
        given = {"--nodes": nodes, "--secret": secret, "--limit": limit}
        _check_only(only, [name for name, value in given.items() if value is not None], nodes)
        options = _options(nodes, base, secret, patience, limit, only)
        return command(options=options, **rest)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # click calls it by keyword


def probe_findings(
    session: "Session", options: ProbeOptions, *, auto: bool
) -> "Generator[Finding, None, None]":
    """Probe each platform that the target uses; with `auto` without a question.

    Raises:
        NotApproved: nobody said yes.
        SgpuError: there is no platform, it does not answer, or it does not allow it.
    """
    for platform in session.doctor.platforms():
        yield from _probed(platform, options, auto=auto)


def _options(
    nodes: int | None,
    base: str | None,
    secret: str | None,
    patience: str | None,
    limit: str | None,
    only: tuple[str, ...],
) -> ProbeOptions:
    default = ProbeOptions()
    if nodes is not None and nodes > _MOST_NODES:
        raise Usage("`--nodes` is 1 or 2", hint="two nodes show all that more would")
    if secret is not None and not _SECRET.fullmatch(secret):
        raise Usage(f"`{secret}` names no secret", hint="write `--secret SCOPE/KEY`")
    limited = default.limit if limit is None else read_duration(limit)
    if limited < _SHORTEST:
        raise Usage(f"`--limit` is at least {_SHORTEST:g}s", hint="leave it out for 60s")
    return ProbeOptions(
        nodes=nodes or default.nodes,
        base=base,
        secret=secret,
        patience=default.patience if patience is None else read_duration(patience),
        limit=limited,
        only=only,
    )


def _check_only(only: tuple[str, ...], names: list[str], nodes: int | None) -> None:
    """Raises Usage: the runs are none, or an option is for a run that `--only` leaves out."""
    if "gang" in only and (nodes or 1) == 1:
        raise Usage("`gang` is a run on two nodes", hint="add `--nodes 2`")
    for option, acts in _USED_IN.items():
        if only and option in names and not set(acts) & set(only):
            runs = " or ".join(f"`--only {act}`" for act in acts)
            raise Usage(f"`{option}` is for a run that `--only` leaves out", hint=f"add {runs}")


def _probed(
    platform: "PlatformChecks", options: ProbeOptions, *, auto: bool
) -> "Iterator[Finding]":
    """Say what the probe costs, ask, and yield findings as they are made. An interrupt ends
    the runs, and deletes what was made.

    Raises:
        NotApproved: nobody said yes.
        BackendError: the platform does not answer, or does not allow it.
    """
    show(f"{platform.host}: {probe_cost_text(platform.cost(options))}", err=True)
    confirm("Launch them?", auto=auto, unattended="approve it with `-y`")
    with closing(platform.probe(options, note)) as findings:
        yield from findings


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM unwind as SIGINT does. Otherwise runs on the platform would go on, and cost."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
