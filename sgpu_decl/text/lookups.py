"""`lookup` of a variable: the name of an object in a workspace, whose id a plan asks for. Until
then the value of the variable is a placeholder, `${lookup.KIND.NAME}`."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text import yaml_nodes

LOOKUP_START = "${lookup."
LOOKUP = re.compile(r"\$\{lookup\.([a-z_]+)\.([^{}]+)\}")
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "warehouse": "an SQL warehouse",
        "service_principal": "a service principal, whose application id is meant",
        "notification_destination": "a destination of notifications",
    }
)
"""What can be looked up, in the words of bundles."""
_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "budget": "`budget` of a run or job takes the name",
        "budget_policy": "`budget` of a run or job takes the name",
        "pool": "reserved pools have no names but their ids: write it in `pool`",
        "instance_pool": "reserved pools have no names but their ids: write it in `pool`",
        "job": "`jobs` has the jobs of the project; give the id of another one as `default`",
    }
)


def lookup_value(
    name: str, node: yaml_nodes.Node
) -> tuple[yaml_nodes.Scalar, tuple[Diagnostic, ...]]:
    """The placeholder for the id, and findings. If the block has mistakes, the text is empty.

    Args:
        name: the variable.
        node: what stands under `lookup`: `{warehouse: NAME}`.
    """
    place = yaml_nodes.place_of(node)
    entries = node.entries if isinstance(node, yaml_nodes.Mapping) else {}
    kind, named = next(iter(entries.items()), ("", None))
    if len(entries) != 1 or not isinstance(named, yaml_nodes.Scalar) or not _fits(named.text):
        code, hint = "wrong_type", "write `lookup: {warehouse: NAME}`"
        summary = f"`lookup` of the variable `{name}` must be one kind with a name"
    elif kind not in KINDS:
        near = nearest(kind, KINDS)
        known = ", ".join(f"`{one}`" for one in KINDS)
        code = "unknown_value"
        hint = _OTHERS.get(kind) or (f"did you mean `{near}`?" if near else f"known: {known}")
        summary = f"`lookup` of the variable `{name}` has no kind `{kind[:80]}`"
    else:
        return named._replace(text=f"{LOOKUP_START}{kind}.{named.text}}}", plain=False), ()
    empty = yaml_nodes.Scalar("", False, place.line, place.column, place.file)  # noqa: FBT003
    return empty, (Diagnostic(code=code, summary=summary, place=place, hint=hint),)


def _fits(name: str) -> bool:
    """A name may have references, which are filled in first."""
    return bool(name.strip()) and not re.search(r"[{}]", re.sub(r"\$\{[^{}]*\}", "", name))
