"""A line of the benchmark table."""

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`limit` is the ratio not to be passed, None where it only informs."""

    what: str
    took: str
    against: str
    ratio: float
    limit: float | None
