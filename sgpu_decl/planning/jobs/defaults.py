"""What a workspace adds to a job's settings by itself: the one table, with a reason beside each
entry.

A setting that is seen there, that nobody asked for, and that this table expects is no drift. `*`
in a path stands for one name; an entry that expects anything holds for all below its path too.
Settings that are empty are never drift: a workspace writes them, or leaves them out, as it likes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType

from sgpu_decl.model.jsonable import Json, canonical

__all__ = ["DEFAULTS", "Anything", "Default", "by_default"]


class Anything(Enum):
    """Whatever the workspace says is as good."""

    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Default:
    values: tuple[Json | Anything, ...]
    why: str


_ANY = (Anything.ANYTHING,)
_WRITTEN = Default((False,), "its default, written out")

DEFAULTS: Mapping[str, Default] = MappingProxyType(
    {
        "format": Default(_ANY, "says how the answer is laid out"),
        "edit_mode": Default(("EDITABLE",), "jobs may be edited in the workspace unless locked"),
        "max_concurrent_runs": Default((1,), "one launch at a time unless asked"),
        "timeout_seconds": Default((0,), "0 is no limit"),
        "queue.enabled": Default((True,), "jobs of newer API versions queue unless told otherwise"),
        "run_as": Default(_ANY, "who applies a job is who it runs as, unless that is set there"),
        "parent_path": Default(_ANY, "where the workspace lists the job"),
        "performance_target": Default(
            ("PERFORMANCE_OPTIMIZED",), "how serverless compute starts unless asked"
        ),
        "budget_policy_id": Default(_ANY, "the workspace may choose a policy for its users"),
        "usage_policy_id": Default(_ANY, "the newer name of the budget policy"),
        "email_notifications.no_alert_for_skipped_runs": _WRITTEN,
        "notification_settings.no_alert_for_skipped_runs": _WRITTEN,
        "notification_settings.no_alert_for_canceled_runs": _WRITTEN,
        "schedule.pause_status": Default(("UNPAUSED",), "what has a schedule runs unless paused"),
        "schedule.timezone_id": Default(("UTC",), "its default, written"),
        "trigger.pause_status": Default(("UNPAUSED",), "what has a trigger runs unless paused"),
        "trigger.table_update.condition": Default(
            ("ANY_UPDATED",), "one table that changed is enough unless asked"
        ),
        "tasks.*.run_if": Default(("ALL_SUCCESS",), "a task runs if all before it succeeded"),
        "tasks.*.timeout_seconds": Default((0,), "0 is no limit"),
        "tasks.*.max_retries": Default((0,), "no retry unless asked"),
        "tasks.*.min_retry_interval_millis": Default((0,), "at once"),
        "tasks.*.retry_on_timeout": _WRITTEN,
        "tasks.*.disabled": _WRITTEN,
        "tasks.*.email_notifications.no_alert_for_skipped_runs": _WRITTEN,
        "tasks.*.ai_runtime_task.mlflow_experiment_directory": Default(
            _ANY, "where the platform keeps the experiment unless asked"
        ),
        "tasks.*.notebook_task.source": Default(
            ("WORKSPACE",), "notebooks lie in the workspace where no repository is named"
        ),
        "environments.*.spec.client": Default(_ANY, "the older name of the environment's version"),
    }
)

_PATTERNS = tuple((tuple(path.split(".")), rule) for path, rule in DEFAULTS.items())


def by_default(path: str, value: Json) -> bool:
    """Whether a workspace says so by itself where nobody asked for anything at `path`."""
    if value in (None, "", [], {}):
        return True
    rule = _rule(path)
    if rule is None:
        return False
    if Anything.ANYTHING in rule.values:
        return True
    return any(
        not isinstance(it, Anything) and canonical(it) == canonical(value) for it in rule.values
    )


@lru_cache(maxsize=4096)
def _rule(path: str) -> Default | None:
    parts = path.split(".")
    for pattern, rule in _PATTERNS:
        whole = len(pattern) == len(parts)
        above = Anything.ANYTHING in rule.values and len(pattern) < len(parts)
        if (whole or above) and all(
            name in ("*", part) for name, part in zip(pattern, parts, strict=False)
        ):
            return rule
    return None
