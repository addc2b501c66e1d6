"""The files of a code tree, and the rule that excludes each of the others."""

import os
from collections.abc import Iterator, Sequence

from sgpu_decl.model.jsonable import Json
from sgpu_decl.staging.selection import Exclusion
from sgpu_decl.staging.snapshot import Snapshot
from sgpu_decl.views.markdown import fenced, written_size
from sgpu_decl.views.terminal import columns, count, escape, size

__all__ = ["FILES_NOTE", "files_json", "files_markdown", "files_text"]

FILES_NOTE = 80
"""Bytes of the line that counts what does not fit."""

_WIDEST = 60  # columns of a path before the rule stands


def files_text(snapshots: Sequence[Snapshot]) -> str:
    """The files of each tree for people; ended by a newline."""
    return "".join(f"{line}\n" for tree in snapshots for line in _lines(tree))


def files_markdown(snapshots: Sequence[Snapshot], *, room: float) -> str:
    """The same as a block of GitHub Markdown of at most `room` bytes, but `FILES_NOTE` at least;
    lines that do not fit are counted."""
    lines = files_text(snapshots).splitlines()
    whole = fenced("\n".join(lines), "")
    if written_size(whole) <= room:
        return f"{whole}\n"
    shown = 0
    room -= written_size(whole) - sum(map(written_size, lines))  # the fences
    for line in lines:
        room -= written_size(line)
        if room < FILES_NOTE:
            break
        shown += 1
    block = [fenced("\n".join(lines[:shown]), "")] if shown else []
    rest = f"{count(len(lines) - shown, 'more line')} about files: see `sgpu plan --files`.\n"
    return "\n\n".join([*block, rest])


def files_json(snapshots: Sequence[Snapshot]) -> list[Json]:
    """For each tree its root, its digest, its files, and the files that are excluded."""
    return [
        {
            "root": os.fspath(tree.root),
            "digest": tree.digest,
            "travels": [
                {"path": entry.path, "bytes": entry.size, "link": entry.target}
                for entry in tree.entries
            ],
            "kept_back": [_kept_json(back) for back in tree.exclusions],
        }
        for tree in snapshots
    ]


def _lines(tree: Snapshot) -> Iterator[str]:
    whole = sum(entry.size for entry in tree.entries)
    shown = escape(os.path.relpath(tree.root))
    yield f"The code in `{shown}`, {count(len(tree.entries), 'file')}, {size(whole)}:"
    for entry in tree.entries:
        link = f" -> {escape(entry.target)}" if entry.target is not None else ""
        yield f"  {size(entry.size):>9}  {escape(entry.path)}{link}"
    if not tree.exclusions:
        yield f"Nothing in `{shown}` is excluded."
        return
    yield f"Excluded in `{shown}`:"
    paths = [escape(back.path) for back in tree.exclusions]
    width = min(_WIDEST, max(map(columns, paths)))
    for path, back in zip(paths, tree.exclusions, strict=True):
        yield f"  {path}{' ' * max(0, width - columns(path))}  {escape(str(back))}"


def _kept_json(item: Exclusion) -> dict[str, Json]:
    at = item.pattern
    return {
        "path": item.path,
        "rule": str(item.rule),
        "pattern": at.text if at else None,
        "file": at.file if at else None,
        "line": at.line if at else None,
    }
