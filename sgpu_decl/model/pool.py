"""Where the GPUs of a run come from: a pool, or whatever is free."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["FIELD", "Pool", "PoolChoice", "PoolKind"]

FIELD = "pool"  # of a run


class PoolKind(StrEnum):
    NAMED = "named"
    RESERVED = "reserved"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class Pool:
    """Where the GPUs of one launch come from. As text `on_demand`, `reserved`, `reserved:ID` or
    `named:ID`.

    Attributes:
        id: of the pool; `None` where the backend takes any reserved one that is accessible.
    """

    kind: PoolKind
    id: str | None = None

    def __str__(self) -> str:
        return str(self.kind) if self.id is None else f"{self.kind}:{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Pool":
        """Read the text form.

        Raises:
            ValueError: it is none.
        """
        kind, _, name = text.partition(":")
        pool = cls(PoolKind(kind), name or None)
        if str(pool) != text:
            raise ValueError(f"`{text}` is not where GPUs come from")
        return pool


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

    @property
    def taken(self) -> Pool:
        """The choice without what led to it."""
        return Pool(self.kind, self.pool)
