"""What a backend can do, as far as planning must know it."""

from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """How runs that come after each other are started as one: at most `most` of them, with the same
    values in the fields `same`."""

    most: int
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`remote`: whether ranks run on other machines, which their code and environment are sent to.
    `in_place`: launch fields that can change while an attempt is active. `fields`: the optional
    fields of `planning/policy` that the backend has. `queues`: whether an attempt can wait for an
    earlier one of its run to end by itself. `joins`: set where runs that come after each other are
    started as one, so that one plan must launch them."""

    remote: bool = False
    in_place: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    queues: bool = True
    joins: Joining | None = None
