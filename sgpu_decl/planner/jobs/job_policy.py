"""What a changed setting of a job is: the one table, with a reason beside each entry.

An entry holds for its path and all below it, the first that fits. Settings of the platform are in
the rules of the platform. What no entry names is the job's config. All of it is changed in place,
but for what the state alone knows.
"""

from collections.abc import Mapping
from types import MappingProxyType

from sgpu_decl.model.job import (
    OURS,
    OURS_IN_TASK,
    RUN,
    STAGED,
    TASKS,
    JobRule,
    JobRules,
    first_match,
)
from sgpu_decl.model.plan import FieldEffect, Reason

POLICY: Mapping[str, JobRule] = MappingProxyType(
    {
        "staged.code": JobRule(Reason.CODE_CHANGED, "the digest of the code"),
        "staged.counted": JobRule(Reason.CODE_CHANGED, "the digest of the code that counts"),
        "staged.notebook": JobRule(Reason.CODE_CHANGED, "the digest of a notebook"),
        "staged.environment": JobRule(
            Reason.ENVIRONMENT_CHANGED, "the digest of what is installed"
        ),
        "staged.packages": JobRule(Reason.ENVIRONMENT_CHANGED, "the digest of its packages"),
        "run.env.variables": JobRule(Reason.CONFIG_CHANGED, "inputs of the program"),
        "run.env.secrets": JobRule(Reason.CONFIG_CHANGED, "inputs of the program"),
        "run.env": JobRule(Reason.ENVIRONMENT_CHANGED, "it declares what ranks find"),
    }
)


def reason_of(path: str, rules: JobRules) -> Reason:
    """Return what changed where the setting at `path` did."""
    if is_ours_in_task(path):
        path = path.split(".", 2)[2]
    rule = first_match((*POLICY.items(), *rules.reasons.items()), path)
    return rule.reason if rule is not None else Reason.CONFIG_CHANGED


def is_ours(path: str) -> bool:
    """Whether the workspace knows nothing of it."""
    return path.partition(".")[0] in OURS or is_ours_in_task(path)


def is_ours_in_task(path: str) -> bool:
    """The same of a part of one task among several."""
    parts = path.split(".", 3)
    return len(parts) > 2 and parts[0] == TASKS and parts[2] in OURS_IN_TASK


def effect_of(path: str, *, otherwise: FieldEffect = FieldEffect.IN_PLACE) -> FieldEffect:
    """What a change of the setting at `path` does. What a run is changes what the job launches."""
    if path.partition(".")[0] in (RUN, STAGED) or is_ours_in_task(path):
        return FieldEffect.IN_PLACE
    return FieldEffect.STATE_ONLY if is_ours(path) else otherwise
