"""How an attempt on other machines stands: what its platform says, and what its nodes brought back,
put together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sgpu_decl.agent.retry_rule import is_of_nodes, why_ended
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.attempt_details import FirstCause
from sgpu_decl.model.attempt_view import AttemptView, status_fields, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

_FROM_NODES = (
    "ranks", "restart", "restarts", "working_files", "metrics", "metrics_problem", "notices",
    "progress", "usage",
)  # fmt: skip
_OF_THE_ENDING = ("state", "failure", "exit_code", "first_cause")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStatus:
    """How an attempt stands. `brought` is the newest attempt of the platform whose nodes brought
    something back. What is `final` will not change any more, and is not asked again. `tracked` is
    what the agent of node 0 said of the MLflow run that its tracker made, if it did."""

    view: AttemptView
    brought: int | None = None
    final: bool = False
    tracked: Mapping[str, Json] | None = None

    def to_json(self) -> dict[str, Json]:
        """What `from_json` reads."""
        failure = str(self.view.failure) if self.view.failure else None
        return {**status_fields(self.view), "class": failure, "brought": self.brought}

    @staticmethod
    def from_json(record: LaunchRecord, ended: Mapping[str, Any]) -> "RemoteStatus":
        """The status of an attempt that has ended."""
        return RemoteStatus(view=view_in(record, ended), brought=ended.get("brought"), final=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformEnding:
    """How an attempt ended, by its platform. `ran` says that the command of its newest attempt was
    started; `message` is the platform's own, with a next step where there is one."""

    state: AttemptState
    failure: FailureClass | None = None
    message: str = ""
    ran: bool = False


def ended_status(
    record: LaunchRecord,
    view: AttemptView,
    ending: PlatformEnding,
    results: RemoteResults,
    *,
    retry: Mapping[str, Any],
    nodes: bool,
    complete: bool,
) -> RemoteStatus:
    """Return how an attempt ended.

    Args:
        view: what the platform says beside its ending: times, links.
        results: what nodes brought back.
        retry: when its ranks start again (`agent.retry_rule`).
        nodes: whether it may have had nodes at any time.
        complete: whether all that nodes wrote is to be seen by now.
    """
    brought = results.newest() if nodes else None
    outcome = results.outcome(brought) if brought is not None else None
    counts = outcome is not None and _counts(outcome, brought or 0, ending, results, retry)
    view = replace(view, exit_code=0 if ending.state is AttemptState.SUCCEEDED else None)
    if ending.failure is not None:
        view = failed_view(view, ending.failure, ending.message)
    if outcome is None:
        if ending.ran and ending.failure is FailureClass.EXIT_CODE:
            words = f"{ending.message.rstrip('.')}; and it left nothing in "
            words += f"`{view.links['folder']}`: see `sgpu logs --rank all`, and whether there is "
            view = failed_view(view, ending.failure, f"{words}room")
        return RemoteStatus(view=view, final=complete or not nodes)
    from_nodes = view_in(record, outcome)
    names = (*_FROM_NODES, *(_OF_THE_ENDING if counts else ()))
    return RemoteStatus(
        view=replace(view, **{name: getattr(from_nodes, name) for name in names}),
        brought=brought,
        final=counts or complete or not _stands(outcome, ending, retry),
    )


def failed_view(view: AttemptView, failure: FailureClass, message: str) -> AttemptView:
    """The view of an attempt that failed."""
    summary = message or f"the platform says no more than `{failure}`"
    cause = FirstCause(failure=str(failure), summary=summary)
    return replace(view, failure=failure, first_cause=cause)


def failed_for_good(results: RemoteResults, retry: Mapping[str, Any]) -> bool:
    """Whether an attempt has failed, and its platform would bring other nodes in vain."""
    attempt = results.newest()
    outcome = results.outcome(attempt) if attempt is not None else None
    return (
        outcome is not None
        and outcome["state"] in (AttemptState.FAILED, AttemptState.LOST)
        and why_ended(outcome, retry, other_nodes=True) is not None
        and bool(results.report(attempt or 0, 0))
    )


def _counts(
    outcome: Mapping[str, Any],
    attempt: int,
    ending: PlatformEnding,
    results: RemoteResults,
    retry: Mapping[str, Any],
) -> bool:
    """Whether the agent's word on how it ended counts for more than the platform's.

    The agent knows more of what happened on the nodes. A platform has codes for its own failures
    and gives them to failures of the user's code too, and it may end a run, or fail to start it
    again, after the user's code has failed. Where it took the nodes away, its own word counts. A
    run that failed for good may have been cancelled for it (`Attempts.cancel_doomed`).
    """
    cancelled = ending.state is AttemptState.CANCELLED
    if ending.failure in (None, FailureClass.EXIT_CODE) and not cancelled:
        return True
    if not _stands(outcome, ending, retry):
        return False
    if outcome["state"] != AttemptState.SUCCEEDED:
        return bool(results.report(attempt, 0))
    nodes = {0, *(int(rank.get("node_rank") or 0) for rank in outcome.get("ranks") or ())}
    return all(results.report(attempt, node).get("exit_code") == 0 for node in sorted(nodes))


def _stands(outcome: Mapping[str, Any], ending: PlatformEnding, retry: Mapping[str, Any]) -> bool:
    """Whether what the agent said stays true, whatever its platform says: the nodes are not to
    blame, or ranks would not start again, and the run was cancelled because of that."""
    if outcome["state"] == AttemptState.SUCCEEDED:
        return True
    failure = outcome.get("class")
    if failure is None:
        return False
    if ending.state is AttemptState.CANCELLED:
        return why_ended(outcome, retry, other_nodes=True) is not None
    return not is_of_nodes(failure)
