"""What a backend can do, as far as planning must know it."""

from dataclasses import dataclass

__all__ = ["OPTIONAL_FIELDS", "Capabilities"]

OPTIONAL_FIELDS = frozenset(
    {"pool", "priority", "permissions", "budget", "image", "on_finish", "ray"}
)
"""Fields of a run that only some backends have, or none has yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`remote`: whether ranks run on other machines, which their code and environment are sent to.
    `in_place`: launch fields that can change while an attempt is active. `fields`: those of
    `OPTIONAL_FIELDS` that the backend has. `queues`: whether an attempt can wait for an earlier
    one of its run to end by itself."""

    remote: bool = False
    in_place: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    queues: bool = True
