"""`sgpu doctor --probe`: runs on a platform that measure its nodes."""

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
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.probe import ACTS, ProbeOptions
from sgpu_decl.views.doctor_text import probe_cost_text

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.api.doctor_calls import PlatformChecks
    from sgpu_decl.model.doctor_finding import Finding

__all__ = ["ProbeRequest", "probe_options", "sigterm_as_interrupt"]

Command = TypeVar("Command", bound=Callable[..., Any])

_MOST_NODES = 2
_SECRET = re.compile(r"[\w.@-]{1,128}/[\w.@-]{1,128}", re.ASCII)
_USED_IN = {"--nodes": ("gang",), "--secret": ("report",), "--limit": ("retried", "gang")}
_SHORTEST = 3.0  # seconds: a third of it must be told from all of it
_OPTIONS = (
    click.option(
        "--probe", is_flag=True,
        help="Launch short runs that measure the nodes of the target's platform.",
    ),
    click.option(
        "--nodes", callback=whole(1), metavar="N",
        help="With --probe: how many nodes to use together, 1 or 2.",
    ),
    click.option("--base", metavar="NAME", help="With --probe: the `env.base` of the nodes."),
    click.option(
        "--secret", metavar="SCOPE/KEY", help="With --probe: a secret for nodes to resolve."
    ),
    click.option(
        "--patience", metavar="D", help="With --probe: how long to wait for a GPU, 30m by default."
    ),
    click.option(
        "--limit", metavar="D",
        help="With --probe: the time limit that one run exceeds, 60s by default.",
    ),
    click.option(
        "--only", type=click.Choice(ACTS), multiple=True,
        help="With --probe: launch this run alone (repeatable).",
    ),
    click.option(
        "-y", "--auto-approve", is_flag=True, help="With --probe: launch without asking."
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """The probe that the command line asks for. With `auto` it starts without a question."""

    options: ProbeOptions
    auto: bool

    def findings(self, session: "Session") -> "Generator[Finding, None, None]":
        """Probe each platform that the target uses.

        Raises:
            NotApproved: nobody said yes.
            SgpuError: there is no platform, it does not answer, or it does not allow it.
        """
        for platform in session.doctor.platforms():
            yield from _probed(platform, self.options, auto=self.auto)


def probe_options(command: Command) -> Command:
    """Add the options of a probe. The command gets them as `probe`, `None` without `--probe`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any, probe: bool, auto_approve: bool, nodes: int | None, base: str | None,
        secret: str | None, patience: str | None, limit: str | None, only: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        values = {
            "--nodes": nodes, "--base": base, "--secret": secret, "--patience": patience,
            "--limit": limit, "--only": only or None, "-y": auto_approve or None,
        }  # fmt: skip
        names = [name for name, value in values.items() if value is not None]
        if names and not probe:
            raise Usage(f"`{names[0]}` is an option of a probe", hint="add `--probe`")
        request = None
        if probe:
            _check_only(only, names, nodes)
            options = _options(nodes, base, secret, patience, limit, only)
            request = ProbeRequest(options=options, auto=auto_approve)
        return command(*args, probe=request, **kwargs)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # options are taken from it, as click does


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
