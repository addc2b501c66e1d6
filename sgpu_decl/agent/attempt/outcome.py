"""How an attempt ended: a pure function of its ranks' ends, and of why they were stopped."""

from __future__ import annotations

from sgpu_decl.agent.attempt.stack_groups import stack_groups
from sgpu_decl.agent.attempt.verdict import stack_files
from sgpu_decl.agent.retry_rule import why_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.verdict import RankEnding, Verdict

_STACKS = 65_536  # characters: they fit into the disk space that is reserved for the outcome
_CODES = {"timeout": 124, "hung": 124}


class Outcome:
    """`cause` is the first cause as `status` shows it; without a class if nothing failed, but the
    caller ended."""

    __slots__ = ("cause", "exit_code", "state")

    def __init__(self, state: str, exit_code: int, cause: dict[str, Any] | None = None) -> None:
        self.state = state
        self.exit_code = exit_code
        self.cause = cause

    def message(self) -> dict[str, Any]:
        """Return it as a message to another node."""
        return {name: getattr(self, name) for name in self.__slots__}


CANCELLED = Outcome("cancelled", 130)


def failed(
    failure: str, summary: str, rank: int | None = None, traceback: str | None = None
) -> Outcome:
    """Return the outcome of a failure that no rank caused, or that kept a rank from starting."""
    from sgpu_decl.agent.attempt.failure_recognition import kind_of_failure

    cause = _cause(failure, summary, rank, traceback)
    known = kind_of_failure(failure, summary, traceback)
    return Outcome("failed", _CODES.get(failure, 1), {**cause, **known})


def _cause(
    failure: str | None, summary: str, rank: int | None = None, traceback: str | None = None
) -> dict[str, Any]:
    return {
        "rank": rank,
        "class": failure,
        "kind": None,
        "summary": summary,
        "traceback": traceback,
        "simultaneous": [],
    }


def stopped(
    reason: str,
    spec: Mapping[str, Any],
    refusal: Outcome | None,
    hang: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return the outcome of an attempt that was stopped.

    `refusal` is the outcome of a rank that could not be started, or of an attempt that was idle;
    `hang` what a monitor said of ranks that wait for others.
    """
    if reason in ("launch", "idle") and refusal is not None:
        return refusal
    if reason == "cancelled":
        return CANCELLED
    if reason == "caller_gone":
        why = f"the process that called it has ended (pid {spec['tether']['pid']})"
        return Outcome("cancelled", CANCELLED.exit_code, _cause(None, why))
    if reason == "deleted":
        return Outcome("lost", 70, _cause("supervisor_lost", "its folder was deleted"))
    if reason == "startup":
        limit = spec["startup_timeout"]
        return failed("timeout", f"ranks were not up after the startup_timeout of {limit:g} s")
    if reason == "hung" and hang is not None:
        (rank,) = hang["ranks"] if len(hang["ranks"]) == 1 else (None,)
        return failed("hung", hang["summary"], rank)
    if reason == "hung":
        limit = spec["progress_timeout"]
        return failed("hung", f"no output and no CPU time for the progress_timeout of {limit:g} s")
    return failed("timeout", f"ran longer than the timeout of {spec['timeout']:g} s")


def judged(
    verdict: Verdict,
    endings: Sequence[RankEnding],
    spec: Mapping[str, Any],
    *,
    stop: str | None,
    refusal: Outcome | None,
    lost: tuple[Outcome, int] | None,
    hang: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return the outcome once all ranks have ended.

    Args:
        stop: why ranks were stopped, if they were.
        refusal: the outcome of a rank that could not be started.
        lost: for a node that was lost, the outcome of that and the time.
        hang: what a monitor said of ranks that wait for others.
    """
    if lost is not None and not _failed_before(verdict, lost[1]):
        return lost[0]
    if stop == "launch":
        return stopped(stop, spec, refusal)
    if verdict.first is not None and stop in (None, "failure", "node", "cluster"):
        return Outcome("failed", verdict.first.code, verdict.cause)
    if stop is not None and (not endings or any(map(_cut_short, endings))):
        outcome = stopped(stop, spec, refusal, hang)
        return _with_stacks(outcome, endings) if stop == "hung" else outcome
    return Outcome("succeeded", 0)


def restarts(outcome: Outcome, retry: Mapping[str, Any], restart: int) -> bool:
    """Whether the ranks start again on their nodes, which are there; `restart` is how often they
    have."""
    failure = (outcome.cause or {}).get("class")
    ended = {"state": outcome.state, "class": failure, "restart": restart}
    return why_ended(ended, retry, other_nodes=False) is None


def _with_stacks(outcome: Outcome, endings: Sequence[RankEnding]) -> Outcome:
    """Add the stacks of all ranks to a hang, equal ones once, `_STACKS` characters in all, in equal
    shares."""
    with_stack = sorted((one for one in endings if one.stack), key=lambda one: one.rank)
    groups = stack_groups({one.rank: one.stack["text"] for one in with_stack if one.stack})
    parts = [f"{one.title}:\n{one.text[: _STACKS // len(groups)].rstrip()}" for one in groups]
    cause = {**(outcome.cause or {}), **stack_files(with_stack)}
    cause["traceback"] = "\n\n".join(parts) or None
    return Outcome(outcome.state, outcome.exit_code, cause)


def _cut_short(ending: RankEnding) -> bool:
    """Whether a rank did not come to its own end; after TERM it may still exit with 0."""
    return ending.failed or ending.term_ns is not None


def _failed_before(verdict: Verdict, lost_ns: int) -> bool:
    """Whether a rank failed by itself before its node, or another, was lost."""
    first = verdict.first
    return first is not None and not first.collateral and first.time_ns < lost_ns
