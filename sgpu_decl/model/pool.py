"""Where the GPUs of a run come from: a pool, or whatever is free."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["FIELD", "PoolChoice", "PoolKind"]

FIELD = "pool"  # of a run


class PoolKind(StrEnum):
    NAMED = "named"
    RESERVED = "reserved"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """What was chosen, and by what.

    Attributes:
        pool: the id of the named pool, or of the reserved one where it is known.
        decided_by: the field (`FIELD`) or the environment variable that decided; `None` for the
            default.
        denied: a reserved pool was asked for, and none is accessible: it is on demand for that.
        unused: the environment variables that say something else and do not count.
    """

    kind: PoolKind
    pool: str | None = None
    decided_by: str | None = None
    denied: bool = False
    unused: tuple[str, ...] = ()
