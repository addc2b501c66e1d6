"""The name that was probably meant."""

from collections.abc import Iterable

# Beyond these, comparing costs more than the hint is worth.
_LONGEST = 100
_MOST = 5_000
_COMPARED = 5
_SHOWN = 4  # names in a hint
_ABOUT = 0.05
# Below this likeness, two words only share letters: `deploy` and `destroy` have 0.62.
_ALIKE = 0.7
_ALIKE_AT_ALL = 0.6  # enough if one word is a part of the other, or they are almost the same


def names_hint(word: str, candidates: Iterable[str]) -> str:
    """The hint of a finding about a name that is unknown: the nearest one, or some of them."""
    known = sorted(set(candidates))
    near = nearest(word, known)
    if near is not None:
        return f"did you mean `{near}`?"
    return (
        f"there are {', '.join(f'`{item}`' for item in known[:_SHOWN])}" if known else "remove it"
    )


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most like `word`, or `None` where none is near.

    Case and the difference between `-`, `_` and a space do not count. Of candidates that are about
    as like, one of the same letters in another order comes first, then one that begins alike. A
    word that is less like a candidate still means it if one is a part of the other, as `gpu_type`
    and `type`.
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
    letters = sorted(plain)
    likeness = {
        item: ratio
        for item in get_close_matches(plain, names, n=_COMPARED, cutoff=_ALIKE_AT_ALL)
        if (ratio := SequenceMatcher(None, item, plain).ratio()) >= _ALIKE
        or sorted(item) == letters
        or _differs_in_one_letter(item, plain)
        or _has_part(plain, item)
        or _has_part(item, plain)
    }
    if not likeness:
        return None
    best = max(likeness.values())
    alike = [item for item, ratio in likeness.items() if ratio > best - _ABOUT]
    return names[max(alike, key=lambda item: (sorted(item) == letters, item[0] == plain[0]))]


def _differs_in_one_letter(one: str, other: str) -> bool:
    return len(one) == len(other) and sum(map(str.__ne__, one, other)) == 1


def _has_part(name: str, part: str) -> bool:
    return name.startswith(part) or part in name.split("_")


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
