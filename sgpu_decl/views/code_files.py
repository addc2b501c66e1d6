"""The files of a code tree, which of them count, and the rule that excludes each of the others."""

import os
from collections.abc import Iterator, Mapping, Sequence

from sgpu_decl.code.counted_code import CountedCode
from sgpu_decl.code.selection import Exclusion
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.markdown import fenced, written_size
from sgpu_decl.views.terminal import columns, count, escape, size

FILES_NOTE = 80
"""Bytes of the line that counts what does not fit."""

_WIDEST = 60  # columns of a path before the rule stands

Counted = Mapping[str, Sequence[tuple[str, CountedCode]]]
"""For the digest of a tree, what of it counts, each with the name of the first such run."""


def files_text(snapshots: Sequence[Snapshot], counted: Counted) -> str:
    """The files of each tree for people; ended by a newline."""
    return "".join(
        f"{line}\n" for tree in snapshots for line in _lines(tree, counted.get(tree.digest, ()))
    )


def files_markdown(snapshots: Sequence[Snapshot], counted: Counted, *, room: float) -> str:
    """The same as a block of GitHub Markdown of at most `room` bytes, but `FILES_NOTE` at least;
    lines that do not fit are counted."""
    lines = files_text(snapshots, counted).splitlines()
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


def files_json(snapshots: Sequence[Snapshot], counted: Counted) -> list[Json]:
    """For each tree its root, its digest, its files, what counts, and what is excluded."""
    return [
        {
            "root": os.fspath(tree.root),
            "digest": tree.digest,
            "travels": [
                {"path": entry.path, "bytes": entry.size, "link": entry.target}
                for entry in tree.entries
            ],
            "counted": [_counted_json(run, one) for run, one in counted.get(tree.digest, ())],
            "kept_back": [_kept_json(back) for back in tree.exclusions],
        }
        for tree in snapshots
    ]


def _lines(tree: Snapshot, counted: Sequence[tuple[str, CountedCode]]) -> Iterator[str]:
    whole = sum(entry.size for entry in tree.entries)
    shown = escape(os.path.relpath(tree.root))
    yield f"The code in `{shown}`, {count(len(tree.entries), 'file')}, {size(whole)}:"
    for entry in tree.entries:
        link = f" -> {escape(entry.target)}" if entry.target is not None else ""
        yield f"  {size(entry.size):>9}  {escape(entry.path)}{link}"
    for run, one in counted:
        runs = f" for `{escape(run)}` and its like" if len(counted) > 1 else ""
        if one.unclear is not None:
            yield f"All of it counts{runs}: {escape(one.unclear)}."
        if one.uncounted:
            yield f"A change of these files launches nothing{runs}:"
            yield from _table(one.uncounted)
        if one.reached:
            yield f"These count{runs}, as the run reaches them:"
            yield from _table(one.reached)
    if not tree.exclusions:
        yield f"Nothing in `{shown}` is excluded."
        return
    yield f"Excluded in `{shown}`:"
    yield from _table({back.path: str(back) for back in tree.exclusions})


def _table(reasons: Mapping[str, str]) -> Iterator[str]:
    """Paths, each with a reason."""
    width = min(_WIDEST, max(columns(escape(path)) for path in reasons))
    for path, reason in sorted(reasons.items()):
        gap = " " * max(0, width - columns(escape(path)))
        yield f"  {escape(path)}{gap}  {escape(reason)}"


def _counted_json(run: str, counted: CountedCode) -> Json:
    return {
        "run": run,
        "uncounted": _reasons_json(counted.uncounted),
        "reached": _reasons_json(counted.reached),
        "everything": counted.unclear,
    }


def _reasons_json(reasons: Mapping[str, str]) -> list[Json]:
    return [{"path": path, "why": why} for path, why in sorted(reasons.items())]


def _kept_json(item: Exclusion) -> dict[str, Json]:
    at = item.pattern
    return {
        "path": item.path,
        "rule": str(item.rule),
        "pattern": at.text if at else None,
        "file": at.file if at else None,
        "line": at.line if at else None,
    }
