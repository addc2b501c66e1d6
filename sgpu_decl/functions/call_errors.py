"""The exception of a call: all that is wrong with it, that of a rank, or else `RankFailed`."""

import linecache
import pickle
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from sgpu_decl.config.call_config import respelt
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import InvalidInput, RunFailed
from sgpu_decl.functions.origin import Origin
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Plan
from sgpu_decl.views.status_text import files_of

if TYPE_CHECKING:
    from sgpu_decl.api import Session

_FRAME = re.compile(r'  File "(.+)", line (\d+), in .*')
_OPTION = re.compile(r" \(`--set [^`]*`\)")  # a call has no command line


class RankFailed(RunFailed):
    """A rank failed, or the whole attempt did.

    It is the cause (`__cause__`) of the rank's own exception. If there is none (after a crash or a
    timeout), or if it cannot be unpickled here, `RankFailed` itself is raised.

    Attributes:
        rank: the number of the rank that failed first; None if no rank failed.
        attempt: such as `train#8`.
        failed: how many ranks failed by themselves.
        failure: the class of the failure: `exception`, `oom`, `timeout`, ...
        traceback: that of the rank, as text; None if there is none.
    """

    code = "rank_failed"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None,
        attempt: str,
        rank: int | None = None,
        failed: int = 0,
        failure: str | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.attempt = attempt
        self.rank = rank
        self.failed = failed
        self.failure = failure
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.message}\n\n{self.traceback.rstrip()}" if self.traceback else self.message

    def __reduce__(self) -> tuple[object, ...]:
        names = ("hint", "attempt", "rank", "failed", "failure", "traceback")
        fields = {name: getattr(self, name) for name in names}
        return partial(type(self), **fields), (self.message,)


def raise_failure(session: "Session", view: AttemptView) -> NoReturn:
    """Raise what ended an attempt that did not succeed.

    Raises:
        BaseException: that of the rank that failed first, with a `RankFailed` as its cause.
        RankFailed: the rank left no exception that can be unpickled here.
    """
    failure = _rank_failed(session, view)
    rank = failure.rank
    exception = _rank_exception(session, view.ref, rank) if rank is not None else None
    if exception is None:
        raise failure
    exception.add_note(failure.message)
    raise exception from failure


def _rank_failed(session: "Session", view: AttemptView) -> RankFailed:
    ref, cause = str(view.ref), view.first_cause
    rank = cause.rank if cause is not None else None
    cancelled = view.state is AttemptState.CANCELLED
    whole = f"`{ref}` was cancelled" if cancelled else f"`{ref}` {view.state}"
    if rank is not None:
        whole = f"rank {rank} of `{ref}` failed"
    if cause is not None and cause.summary:
        whole += f": {cause.summary.removeprefix(f'rank {rank} ')}"
    failed = [item.state for item in view.ranks].count("failed")
    if failed > 1:
        whole += f" ({failed} of {len(view.ranks)} ranks failed; this one was the first)"
    trace = None
    if cause is not None and cause.traceback:
        trace = "\n".join([with_lines(cause.traceback).rstrip(), *files_of(cause)])
    hint = f"the output of all ranks: `sgpu logs {shlex.quote(ref)} --rank all`"
    if cause is not None and cause.kind is not None and cause.explanation is not None:
        whole += f" [{cause.kind}: {cause.explanation.meaning}]"
        hint = f"{cause.explanation.next_step}; {hint}"
    return RankFailed(
        whole,
        hint=session.complete(hint),
        attempt=ref,
        rank=rank,
        failed=failed,
        failure=(cause.failure or None) if cause is not None else None,
        traceback=trace,
    )


def with_lines(trace: str) -> str:
    """Add the lines of source that only the caller has, those of notebook cells, to a rank's
    traceback."""
    lines = trace.split("\n")
    whole = []
    for at, line in enumerate(lines):
        whole.append(line)
        match = _FRAME.fullmatch(line)
        below = lines[at + 1] if at + 1 < len(lines) else ""
        if match is not None and not below.startswith("    "):
            source = linecache.getline(match[1], int(match[2])).strip()
            whole += [f"    {source}"] if source else []
    return "\n".join(whole)


def _rank_exception(session: "Session", ref: AttemptRef, rank: int) -> BaseException | None:
    """The rank's exception, if it left one that is known here."""
    raw = session.runs.failure(ref, rank)
    if raw is None:
        return None
    try:
        error = pickle.loads(raw)  # noqa: S301  from our own ranks, in a folder of ours
        if isinstance(error, tuple):
            error = _rebuilt_exception(*error)
    except Exception:  # noqa: BLE001  a class that is not here, or whose `__init__` takes something else
        return None
    return error if isinstance(error, BaseException) else None


def _rebuilt_exception(
    kind: type[BaseException], args: tuple[object, ...], state: Mapping[str, object]
) -> BaseException:
    """Rebuild an exception whose `__init__` takes other arguments than `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def refuse(name: str, findings: Sequence[Diagnostic]) -> InvalidInput:
    """The error of a call with these findings: a single one is the message, several are listed."""
    errors = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
    if len(errors) > 1:
        lines = "".join(
            f"\n  {_line(error)}" + (f"; {error.hint}" if error.hint else "") for error in errors
        )
        message = f"{len(errors)} things are wrong{lines}"
    else:
        message = _line(errors[0])
    return InvalidInput(
        f"`{name}` cannot be called: {message}",
        hint=errors[0].hint if len(errors) == 1 else None,
        diagnostics=errors,
    )


def refuse_plan(plan: Plan, origin: Origin, parameters: Mapping[str, str]) -> InvalidInput | None:
    """The error that a plan's checks are, or None where it can be applied.

    Args:
        origin: of the function. Findings at its place use the words of the decorator.
        parameters: the decorator's parameters, by the field that each gives.
    """
    findings = [
        respelt(replace(one, hint=one.hint and _OPTION.sub("", one.hint)), origin.place, parameters)
        for one in plan.checks
        if one.severity is Severity.ERROR
    ]
    return refuse(origin.name, findings) if findings else None


def _line(finding: Diagnostic) -> str:
    return f"{finding.summary} ({finding.place})" if finding.place else finding.summary
