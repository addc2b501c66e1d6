"""Why something is launched, or is not, in words."""

from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType

from sgpu_decl.model.attempt import NOT_STARTED, FailureClass
from sgpu_decl.model.launch import Reason
from sgpu_decl.model.state import Attempt
from sgpu_decl.planning.location import COMMAND_FILE
from sgpu_decl.views.terminal import escape

AGAIN = "first run since it was destroyed or forgotten"
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
