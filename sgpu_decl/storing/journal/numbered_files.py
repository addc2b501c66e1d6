"""Entries and checkpoints as files that have their numbers for names, in every store of files."""

import re
from collections.abc import Callable, Iterable

__all__ = [
    "checkpoint_name",
    "checkpoint_number",
    "entry_name",
    "entry_number",
    "entry_text",
    "found_checkpoint",
]

_ENTRY = re.compile(r"([0-9]{12})\.json")
_CHECKPOINT = re.compile(r"([0-9]{12})\.db\.gz")


def entry_name(number: int) -> str:
    return f"{number:012}.json"


def entry_number(name: str) -> int | None:
    """The number of an entry; None for a file that is none."""
    found = _ENTRY.fullmatch(name)
    return None if found is None else int(found[1])


def entry_text(content: bytes) -> str:
    """The text of an entry. Bytes that sgpu has not written stay visible."""
    return content.decode("ascii", "backslashreplace")


def checkpoint_name(number: int) -> str:
    return f"{number:012}.db.gz"


def checkpoint_number(name: str) -> int | None:
    """The number of a checkpoint; None for a file that is none."""
    found = _CHECKPOINT.fullmatch(name)
    return None if found is None else int(found[1])


def found_checkpoint(
    numbers: Iterable[int],
    choose: Callable[[Iterable[int]], int],
    read: Callable[[int], bytes | None],
) -> tuple[int, bytes] | None:
    """The checkpoint that `choose` takes, and its content. One that is being deleted is left out.

    Args:
        choose: `max` or `min`.
        read: gives the content of a checkpoint; None where it is not there.
    """
    left = set(numbers)
    while left:
        number = choose(left)
        content = read(number)
        if content is not None:
            return number, content
        left.remove(number)
    return None
