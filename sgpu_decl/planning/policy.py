"""Which class a field belongs to: the one table, with a reason beside each entry.

    data      what is computed: a change means a new attempt
    launch    how it is launched: changed in place where the backend can, else for the next attempt
    meta      kept in the state alone
    identity  part of the run's address: it never shows as a changed field

An entry holds for its path and all below it; the longest entry wins. A path that no entry names
counts as data: relaunching too often is safer than calling a different computation up to date.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from sgpu_decl.model.plan import Effect

__all__ = ["POLICY", "SECRETS", "FieldClass", "Rule", "class_of", "effect_of", "has_entries_below"]


class FieldClass(StrEnum):
    IDENTITY = "identity"
    DATA = "data"
    LAUNCH = "launch"
    META = "meta"


@dataclass(frozen=True, slots=True)
class Rule:
    field_class: FieldClass
    why: str


_IDENTITY, _DATA, _LAUNCH, _META = FieldClass

POLICY: Mapping[str, Rule] = MappingProxyType(
    {
        "name": Rule(_IDENTITY, "it is the address"),
        "matrix": Rule(_IDENTITY, "each cell is an address of its own; its values land in fields"),
        "variables": Rule(_IDENTITY, "their values land in the fields that use them"),
        "targets": Rule(_IDENTITY, "the chosen target is merged into the fields"),
        "description": Rule(_META, "read by people only"),
        "tags": Rule(_META, "used to search, not to compute"),
        "gpus": Rule(_DATA, "the world size changes batches and shards"),
        "type": Rule(_DATA, "another accelerator computes other numbers"),
        "entrypoint": Rule(_DATA, "it is the program"),
        "command": Rule(_DATA, "it is the program"),
        "args": Rule(_DATA, "the program's inputs"),
        "launch": Rule(_LAUNCH, "how processes start"),
        "launch.per": Rule(_DATA, "it decides how many times the program runs"),
        "env": Rule(_DATA, "packages and variables are inputs of the program"),
        "env.use": Rule(_META, "what it names is compared instead"),
        "code": Rule(_DATA, "the program's source"),
        "code.root": Rule(_META, "the digest of the code that it selects is compared instead"),
        "code.include": Rule(_META, "the digest of the code that it selects is compared instead"),
        "code.exclude": Rule(_META, "the digest of the code that it selects is compared instead"),
        "code.link": Rule(_DATA, "linked files are outside the digest, so the list itself counts"),
        "ray": Rule(_DATA, "the program runs inside another runtime"),
        "timeout": Rule(_LAUNCH, "a limit; the result does not depend on it"),
        "grace": Rule(_LAUNCH, "used only while stopping"),
        "startup_timeout": Rule(_LAUNCH, "a limit; the result does not depend on it"),
        "progress_timeout": Rule(_LAUNCH, "a limit; the result does not depend on it"),
        "retry": Rule(_LAUNCH, "used only after a failure"),
        "mlflow": Rule(_LAUNCH, "where results are noted, not what they are"),
        "max_parallel": Rule(_LAUNCH, "decides when a cell starts"),
        "until": Rule(_LAUNCH, "decides when to launch again"),
        "on_active": Rule(_LAUNCH, "decides what happens to an active attempt"),
        "lifecycle": Rule(_META, "rules for planning"),
        "pool": Rule(_LAUNCH, "where it waits for room"),
        "priority": Rule(_LAUNCH, "when it gets room"),
        "permissions": Rule(_LAUNCH, "who may see and stop it"),
        "budget": Rule(_LAUNCH, "who pays"),
        "image": Rule(_LAUNCH, "the base that the backend offers"),
        "on_finish": Rule(_LAUNCH, "what follows the run"),
        "backend": Rule(_LAUNCH, "where it runs"),
    }
)

SECRETS = "env.secrets."
"""Values below this path are references to secrets and are shown as such."""

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


def effect_of(path: str, in_place: frozenset[str], *, active: bool) -> Effect:
    """Return what a change of `path` does.

    `in_place` holds the launch fields that the run's backend can change while an attempt is
    `active`; without an active attempt there is nothing to change in place.
    """
    match class_of(path):
        case FieldClass.DATA:
            return Effect.NEW_ATTEMPT
        case FieldClass.LAUNCH:
            can = active and any(
                path == field or path.startswith(field + ".") for field in in_place
            )
            return Effect.IN_PLACE if can else Effect.NEXT_ATTEMPT
        case _:
            return Effect.STATE_ONLY
