"""What a changed setting of a job is: the one table, with a reason beside each entry.

An entry holds for its path and all below it; `*` stands for one name. What no entry names is the
job's config. All of it is changed in place, but for what is `OURS`, which the state alone knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.model.job import OURS
from sgpu_decl.model.plan import Reason

__all__ = ["POLICY", "Rule", "is_ours", "reason_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    reason: Reason
    why: str


POLICY: Mapping[str, Rule] = MappingProxyType(
    {
        "tasks.*.ai_runtime_task.code_source_path": Rule(
            Reason.CODE_CHANGED, "the path is named after the code's digest"
        ),
        "tasks.*.ai_runtime_task.deployments": Rule(
            Reason.CONFIG_CHANGED, "the command's path is named after what it launches"
        ),
        "environments": Rule(Reason.ENVIRONMENT_CHANGED, "packages are what is installed"),
        "tasks.*.environment_key": Rule(Reason.ENVIRONMENT_CHANGED, "it names the packages"),
    }
)


def reason_of(path: str) -> Reason:
    """Return what changed where the setting at `path` did."""
    parts = path.split(".")
    for pattern, rule in POLICY.items():
        names = pattern.split(".")
        if len(names) <= len(parts) and all(
            name in ("*", part) for name, part in zip(names, parts, strict=False)
        ):
            return rule.reason
    return Reason.CONFIG_CHANGED


def is_ours(path: str) -> bool:
    """Whether the workspace knows nothing of it."""
    return path.partition(".")[0] in OURS
