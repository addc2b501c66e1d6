"""Whether a task of a job runs after those before it have ended, and how a launch has ended.

Source: https://docs.databricks.com/aws/en/jobs/run-if. A task that handles failures and has none
to handle is excluded, which counts as success. A task whose predecessors are all excluded is
excluded too. The tasks that no other one comes after decide how a launch has ended.
"""

from __future__ import annotations

from enum import StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class TaskEnd(StrEnum):
    """How a task has ended. One that is not run because others failed has failed too."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXCLUDED = "excluded"


def hindrance(run_if: str, before: Sequence[TaskEnd]) -> TaskEnd | None:
    """How a task ends without having run; None if it runs. A task that comes after none runs."""
    if not before:
        return None
    if all(end is TaskEnd.EXCLUDED for end in before):
        return TaskEnd.EXCLUDED
    failed = [end is TaskEnd.FAILED for end in before]
    match run_if:
        case "all_success" | "none_failed":
            return TaskEnd.FAILED if any(failed) else None
        case "at_least_one_success":
            return TaskEnd.FAILED if all(failed) else None
        case "all_failed":
            return None if all(failed) else TaskEnd.EXCLUDED
        case "at_least_one_failed":
            return None if any(failed) else TaskEnd.EXCLUDED
    return None  # `all_done`


def succeeded(ends: Mapping[str, TaskEnd], after: Mapping[str, Collection[str]]) -> bool:
    """Whether a launch has succeeded.

    Args:
        ends: how each of its tasks has ended.
        after: the tasks that each comes after.
    """
    followed = {name for names in after.values() for name in names}
    return all(ends[name] is not TaskEnd.FAILED for name in ends.keys() - followed)
