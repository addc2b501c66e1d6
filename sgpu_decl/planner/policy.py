"""Which class a field belongs to: the one table, with a reason beside each entry.

    data      what is computed: a change means a new attempt
    launch    how it is launched: changed in place where the backend can, else for the next attempt
    meta      kept in the state alone
    identity  part of the run's address: it never shows as a changed field

An entry holds for its path and all below it; the longest entry wins. A path that no entry names
counts as data: relaunching too often is safer than calling a different computation up to date.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.plan import FieldEffect


class FieldClass(StrEnum):
    IDENTITY = "identity"
    DATA = "data"
    LAUNCH = "launch"
    META = "meta"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """`optional`: only some backends have the field, or none has it yet."""

    field_class: FieldClass
    why: str
    optional: bool = False


_IDENTITY, _DATA, _LAUNCH, _META = FieldClass

POLICY: Mapping[str, FieldRule] = MappingProxyType(
    {
        "name": FieldRule(_IDENTITY, "it is the address"),
        "matrix": FieldRule(
            _IDENTITY, "each cell has its own address; its values become values of fields"
        ),
        "renamed_from": FieldRule(
            _IDENTITY, "it names the earlier address; the computation is the same"
        ),
        "enabled": FieldRule(_IDENTITY, "it decides whether the target has the run"),
        "variables": FieldRule(_IDENTITY, "their values become values of the fields that use them"),
        "targets": FieldRule(_IDENTITY, "the chosen target is merged into the fields"),
        "description": FieldRule(_META, "read by people only"),
        "tags": FieldRule(_META, "used to search, not to compute"),
        "gpus": FieldRule(_DATA, "the world size changes batches and shards"),
        "type": FieldRule(_DATA, "another accelerator computes other numbers"),
        "entrypoint": FieldRule(_DATA, "it is the program"),
        "command": FieldRule(_DATA, "it is the program"),
        "args": FieldRule(_DATA, "the program's inputs"),
        "parameters": FieldRule(_DATA, "the program's inputs"),
        "launch": FieldRule(_LAUNCH, "how processes start"),
        "launch.per": FieldRule(_DATA, "it decides how many times the program runs"),
        "env": FieldRule(_DATA, "packages and variables are inputs of the program"),
        "env.use": FieldRule(_META, "the packages of the named environment are compared instead"),
        "code": FieldRule(_DATA, "the program's source"),
        "code.root": FieldRule(_META, "the digest of the code that it selects is compared instead"),
        "code.include": FieldRule(
            _META, "the digest of the code that it selects is compared instead"
        ),
        "code.exclude": FieldRule(
            _META, "the digest of the code that it selects is compared instead"
        ),
        "code.count": FieldRule(_META, "the digest of the code that counts is compared instead"),
        "code.link": FieldRule(
            _DATA, "linked files are outside the digest, so the list itself counts"
        ),
        "ray": FieldRule(
            _DATA, "the program is the driver of a cluster, and sees its resources", optional=True
        ),
        "ray.cluster": FieldRule(
            _DATA, "another cluster has other resources for the program's tasks", optional=True
        ),
        "ray.temp_dir": FieldRule(_LAUNCH, "the place of sockets, logs and spilled objects"),
        "ray.port": FieldRule(_LAUNCH, "how the nodes find each other"),
        "ray.dashboard": FieldRule(_LAUNCH, "it shows the cluster to people"),
        "ray.metrics_export_port": FieldRule(_LAUNCH, "the place of metrics, not their values"),
        "ray.metrics_interval": FieldRule(_LAUNCH, "how often metrics are read"),
        "ray.head_startup_timeout": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "ray.worker_join_timeout": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "timeout": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "grace": FieldRule(_LAUNCH, "used only while stopping"),
        "startup_timeout": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "progress_timeout": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "preflight": FieldRule(_LAUNCH, "a test of the machine; the result does not depend on it"),
        "idle": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "hang_after": FieldRule(_LAUNCH, "a limit; the result does not depend on it"),
        "hang": FieldRule(_LAUNCH, "what happens to ranks that wait for ever"),
        "retry": FieldRule(_LAUNCH, "used only after a failure"),
        "resume": FieldRule(
            _LAUNCH, "where the program may continue; its outputs decide that", optional=True
        ),
        "after": FieldRule(
            _LAUNCH,
            "decides when ranks start; an output that they read is in a data field",
            optional=True,
        ),
        "logs": FieldRule(_LAUNCH, "the content of log files, not the computation"),
        "mlflow": FieldRule(_LAUNCH, "the place of results, not their values"),
        "max_parallel": FieldRule(_LAUNCH, "decides when a cell starts"),
        "until": FieldRule(_LAUNCH, "decides when to launch again"),
        "on_active": FieldRule(_LAUNCH, "decides what happens to an active attempt"),
        "lifecycle": FieldRule(_META, "rules for planning"),
        "pool": FieldRule(_LAUNCH, "where it waits for room", optional=True),
        "priority": FieldRule(_LAUNCH, "when it gets room", optional=True),
        "permissions": FieldRule(_LAUNCH, "who may see and stop it", optional=True),
        "budget": FieldRule(_LAUNCH, "who pays", optional=True),
        "image": FieldRule(_LAUNCH, "the base that the backend offers", optional=True),
        "report": FieldRule(_LAUNCH, "a page about the run, after it"),
        "on_finish": FieldRule(_LAUNCH, "who is told after the run", optional=True),
        "on_finish.success": FieldRule(_LAUNCH, "mail after the run", optional=True),
        "on_finish.failure": FieldRule(_LAUNCH, "mail after the run", optional=True),
        "backend": FieldRule(_LAUNCH, "where it runs"),
    }
)

SECRETS = ("env.secrets.", "on_finish.webhook.url", "on_finish.webhook.secret")
"""Values below these paths are references to secrets and are shown as such. One that is a secret
only sometimes is an address (`https://…`) otherwise."""

SWITCHES = frozenset({"ray", "idle"})
"""Blocks that change the run by being there, even if they are empty."""

OPTIONAL_FIELDS = frozenset(path for path, rule in POLICY.items() if rule.optional)
"""Fields of a run that only some backends have, or none has yet."""

FIELDS = frozenset(path.partition(".")[0] for path in POLICY)
"""The fields of a run."""

_PARENTS = frozenset(path.rpartition(".")[0] for path in POLICY if "." in path)


def has_entries_below(path: str) -> bool:
    """Tell whether the fields below `path` may differ in class."""
    return path in _PARENTS


@lru_cache(maxsize=4096)
def class_of(path: str) -> FieldClass:
    """Return the class of a dotted path by its longest entry; unknown paths are data."""
    while path:
        rule = POLICY.get(path)
        if rule is not None:
            return rule.field_class
        path = path.rpartition(".")[0]
    return FieldClass.DATA


def effect_of(path: str, in_place: frozenset[str], *, active: bool) -> FieldEffect:
    """Return what a change of `path` does.

    `in_place` holds the launch fields that the run's backend can change while an attempt is
    `active`; without an active attempt there is nothing to change in place.
    """
    match class_of(path):
        case FieldClass.DATA:
            return FieldEffect.NEW_ATTEMPT
        case FieldClass.LAUNCH:
            can = active and any(
                path == field or path.startswith(field + ".") for field in in_place
            )
            return FieldEffect.IN_PLACE if can else FieldEffect.NEXT_ATTEMPT
        case _:
            return FieldEffect.STATE_ONLY
