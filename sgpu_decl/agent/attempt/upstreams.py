"""In words: the attempts of other runs that an attempt comes after (`after`)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMED = 3
_ENDED = {"failed": "failed", "cancelled": "was cancelled", "lost": "was lost"}


def listed(names: Sequence[str]) -> str:
    """The attempts that are waited for."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def refusal(name: str, state: str) -> str:
    """Why an attempt does not start whose upstream has ended in that state, not `succeeded`."""
    return f"{name} {_ENDED.get(state, 'is gone')}, and this run comes after it"
