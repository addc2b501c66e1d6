"""What a backend can do, as far as planning must know it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["OPTIONAL_FIELDS", "TODAY", "Capabilities"]

OPTIONAL_FIELDS = frozenset({"pool", "priority", "permissions", "budget", "image", "on_finish"})
"""Fields of a run that only some backends have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`in_place`: launch fields that can change while an attempt is active. `fields`: those of
    `OPTIONAL_FIELDS` that the backend has."""

    in_place: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()


TODAY: Mapping[str, Capabilities] = MappingProxyType(
    {"databricks": Capabilities(fields=OPTIONAL_FIELDS), "local": Capabilities()}
)
"""The backends that can be planned for; others are refused with a way out."""
