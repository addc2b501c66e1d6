"""Why something is launched, or is not, and what an attempt changed, in words."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

from sgpu_decl.model.attempt import NOT_STARTED, FailureClass
from sgpu_decl.model.launch import LaunchInputs, Reason
from sgpu_decl.model.state import Attempt
from sgpu_decl.planning.location import COMMAND_FILE
from sgpu_decl.views.terminal import escape

AGAIN = "first run since it was destroyed or forgotten"
CANCELLED = "the last attempt was cancelled by a person"
ALWAYS = "every apply, or call, launches it (`until: always`)"

REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.REQUESTED_RERUN: "a rerun was requested",
        Reason.REMOVED_FROM_CONFIG: "the file no longer declares it",
        Reason.ALREADY_RUNNING: "it is running already",
        Reason.PREVIOUS_LOST: "the last attempt was lost",
        Reason.PREVIOUS_FAILED: "the last attempt failed",
        Reason.FIRST_RUN: "first run",
        Reason.CONFIG_CHANGED: "the config changed",
        Reason.CODE_CHANGED: "the code changed",
        Reason.ENVIRONMENT_CHANGED: "the environment changed",
        Reason.LIVE_DRIFTED: "the live run differs from what was applied",
        Reason.FAILED_NOT_RETRIED: "failed, not retried: `--retry-failed` launches it again",
        Reason.CANCELLED_BY_USER: "cancelled: `--rerun` launches it again",
        Reason.UPSTREAM_FAILED: "skipped: a run that it comes after has not succeeded",
        Reason.UP_TO_DATE: "up to date",
    }
)

NOT_STARTED_WORDS: Mapping[FailureClass, str] = MappingProxyType(
    {
        FailureClass.LAUNCH_FAILED_USER: "what its file asks for cannot be started",
        FailureClass.LAUNCH_FAILED: "the machine or the platform refused to start its ranks",
        FailureClass.STAGING_FAILED: "its code, environment or data did not reach a node",
        FailureClass.CAPACITY: "there was no room for it",
        FailureClass.UPSTREAM_FAILED: "a run that it comes after had not succeeded",
    }
)
"""Why ranks did not run, for each of these failures."""
_SHOWN = 5


def rerun_words(owner: str) -> str:
    """Return who asked for a rerun of the runs that `owner` declares: each call of `sgpu run` does
    so by itself."""
    if PurePath(owner).name == COMMAND_FILE:
        return "`sgpu run` was called"
    return REASONS[Reason.REQUESTED_RERUN]


def launch_reason(attempt: Attempt, owner: str, before: Attempt | None) -> str:
    """Return why a recorded attempt of a run that `owner` declares was launched, `before` it
    another one; empty where an older sgpu launched it."""
    reason = attempt.provenance.reason
    if reason == Reason.REQUESTED_RERUN:
        if attempt.inputs.spec.fields.get("until") == "always":
            return ALWAYS
        if before is None:  # one may ask to rerun what never ran
            return REASONS[Reason.FIRST_RUN]
        return rerun_words(owner)
    if reason == Reason.FIRST_RUN and before is not None:
        return AGAIN
    if reason == Reason.CANCELLED_BY_USER:
        return CANCELLED
    if reason == Reason.PREVIOUS_FAILED and before is not None and before.failure in NOT_STARTED:
        return "the last attempt could not start"
    if reason is not None and reason in REASONS:
        return REASONS[Reason(reason)]
    return escape(reason or "")


def commit_words(attempt: Attempt) -> str:
    """Return the commit that an attempt was launched from; empty if it is not known."""
    commit, dirty = attempt.provenance.commit, attempt.provenance.dirty
    if commit is None:
        return ""
    return escape(commit[:12]) + (" and local changes" if dirty else "")


def changes_of(attempts: Sequence[Attempt]) -> list[tuple[str, ...]]:
    """Return, for each attempt, the paths of its fields that differ from those of the attempt
    before; `code`, `environment` and `packages` stand for content that does. The first has none."""
    before = [None, *(attempt.inputs for attempt in attempts)]
    return [
        () if earlier is None else _changes(earlier, attempt.inputs)
        for earlier, attempt in zip(before, attempts, strict=False)
    ]


def changed_words(changes: Sequence[str]) -> str:
    """Return `args.steps, code`, or as much of it as a line takes."""
    shown = ", ".join(escape(path) for path in changes[:_SHOWN])
    more = len(changes) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _changes(before: LaunchInputs, after: LaunchInputs) -> tuple[str, ...]:
    contents = {
        "code": (before.code_digest, after.code_digest),
        "environment": (before.environment_digest, after.environment_digest),
        "packages": (before.packages_digest, after.packages_digest),
    }
    changed = tuple(name for name, (old, new) in contents.items() if old != new)
    if before.spec == after.spec:
        return changed
    from sgpu_decl.planner.field_changes import compare  # with the words of plans

    return (*(difference.path for difference in compare(before.spec, after.spec)), *changed)
