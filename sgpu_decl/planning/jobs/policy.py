"""What a changed setting of a job is: the one table, with a reason beside each entry.

An entry holds for its path and all below it, the first that fits; `*` stands for one name. What no
entry names is the job's config. All of it is changed in place, but for what the state alone knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.model.job import OURS, RUN, STAGED
from sgpu_decl.model.plan import Effect, Reason

__all__ = ["POLICY", "Rule", "effect_of", "is_ours", "reason_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    reason: Reason
    why: str


POLICY: Mapping[str, Rule] = MappingProxyType(
    {
        "staged.code": Rule(Reason.CODE_CHANGED, "the digest of the code"),
        "staged.environment": Rule(Reason.ENVIRONMENT_CHANGED, "the digest of what is installed"),
        "staged.packages": Rule(Reason.ENVIRONMENT_CHANGED, "the digest of its packages"),
        "run.env.variables": Rule(Reason.CONFIG_CHANGED, "inputs of the program"),
        "run.env.secrets": Rule(Reason.CONFIG_CHANGED, "inputs of the program"),
        "run.env": Rule(Reason.ENVIRONMENT_CHANGED, "it declares what ranks find"),
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


def effect_of(path: str, *, otherwise: Effect = Effect.IN_PLACE) -> Effect:
    """What a change of the setting at `path` does. What a run is changes what the job launches."""
    if path.partition(".")[0] in (RUN, STAGED):
        return Effect.IN_PLACE
    return Effect.STATE_ONLY if is_ours(path) else otherwise
