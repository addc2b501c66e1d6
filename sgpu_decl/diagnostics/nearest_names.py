"""The name that was probably meant."""

from collections.abc import Iterable

__all__ = ["nearest"]

# Beyond these, comparing costs more than the hint is worth.
_LONGEST = 100
_MOST = 5_000
_COMPARED = 3
_ABOUT = 0.05


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most like `word`, or `None` where none is near.

    Case and the difference between `-`, `_` and a space do not count. Of candidates that are about
    as like, one of the same letters in another order comes first, then one that begins alike.
    """
    from difflib import SequenceMatcher, get_close_matches  # 2 ms that only a mistake needs

    if not word or len(word) > _LONGEST:
        return None
    names: dict[str, str] = {}
    for name in candidates:
        names.setdefault(_plain(name), name)
        if len(names) >= _MOST:
            break
    plain = _plain(word)
    found = get_close_matches(plain, names, n=_COMPARED, cutoff=0.6)
    if not found:
        return None
    best = SequenceMatcher(None, found[0], plain).ratio()
    alike = [item for item in found if SequenceMatcher(None, item, plain).ratio() > best - _ABOUT]
    letters = sorted(plain)
    return names[max(alike, key=lambda item: (sorted(item) == letters, item[0] == plain[0]))]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
