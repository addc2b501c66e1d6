"""The name that was probably meant."""

from collections.abc import Iterable

__all__ = ["nearest"]

# Beyond these, comparing costs more than the hint is worth.
_LONGEST = 100
_MOST = 5_000


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most like `word`, or `None` where none is near.

    Case and the difference between `-`, `_` and a space do not count.
    """
    from difflib import get_close_matches  # 2 ms that only a mistake needs

    if not word or len(word) > _LONGEST:
        return None
    names: dict[str, str] = {}
    for name in candidates:
        names.setdefault(_plain(name), name)
        if len(names) >= _MOST:
            break
    found = get_close_matches(_plain(word), names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
