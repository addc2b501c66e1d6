"""Which files differ between two snapshots of code, and in which lines."""

from collections.abc import Iterator

from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import Snapshot, SnapshotEntry
from sgpu_decl.model.attempt_diff import FileDiff

_LARGEST = 1 << 20  # bytes of a file whose lines are compared
_MOST_LINES = 20_000


def code_diff(store: CodeStore, before: Snapshot, after: Snapshot) -> Iterator[FileDiff]:
    """The files that differ, by path."""
    old = {entry.path: entry for entry in before.entries}
    new = {entry.path: entry for entry in after.entries}
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield _file_diff(store, path, old.get(path), new.get(path))


def _file_diff(
    store: CodeStore, path: str, old: SnapshotEntry | None, new: SnapshotEntry | None
) -> FileDiff:
    change = "changed" if old and new else "added" if new else "removed"
    if old and new and (old.digest, old.target) == (new.digest, new.target):
        note = "executable now" if new.executable else "no longer executable"
        return FileDiff(path=path, change=change, note=note)
    if (old and old.target) or (new and new.target):
        ends = [entry.target or "a file" for entry in (old, new) if entry]
        return FileDiff(path=path, change=change, note=f"link: {' -> '.join(ends)}")
    if any(entry and entry.size > _LARGEST for entry in (old, new)):
        return FileDiff(path=path, change=change, note="too large to compare its lines")
    try:
        sides = [_lines(store, entry) for entry in (old, new)]
    except UnicodeDecodeError:
        return FileDiff(path=path, change=change, note="not text")
    if any(side is None for side in sides):
        return FileDiff(path=path, change=change, note="its content is not in the store any more")
    one, two = (side or [] for side in sides)
    if len(one) + len(two) > _MOST_LINES:
        return FileDiff(path=path, change=change, note="too long to compare its lines")
    from difflib import unified_diff

    lines = list(unified_diff(one, two, lineterm="", n=3))[2:]  # less the names of both sides
    last = "only the end of the last line differs" if old and new and not lines else None
    return FileDiff(path=path, change=change, lines=tuple(lines), note=last)


def _lines(store: CodeStore, entry: SnapshotEntry | None) -> list[str] | None:
    """The lines of a file, none for one that is not there; None where its content is gone.

    Raises:
        UnicodeDecodeError: it is not text.
    """
    if entry is None:
        return []
    content = store.content(entry)
    if content is None:
        return None
    text = content.decode()
    if "\0" in text:
        raise UnicodeDecodeError("utf-8", content, 0, 1, "a zero byte")
    return text.removesuffix("\n").split("\n") if text else []
