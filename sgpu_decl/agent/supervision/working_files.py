"""The files that ranks wrote into their working folder. That is the attempt's own copy of the code,
so the next attempt does not see them."""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt.attempt_files import SPEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

__all__ = ["working_files"]

_SHOWN = 3
_MOST_ENTRIES = 50_000  # larger trees are not searched to the end
_IGNORED = ("__pycache__", ".git")


def working_files(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the number of these files and the first names; None if there are none.

    The spec is staged last, so newer files were written by the run.
    """
    if spec["code_root"] is None:
        return None  # a call works in the folder of its caller
    try:
        staged = os.stat(os.path.join(spec["run_dir"], SPEC)).st_mtime_ns
    except OSError:
        return None
    names = sorted(_newer(spec["code_dir"], staged))
    return {"count": len(names), "names": names[:_SHOWN]} if names else None


def _newer(root: str, moment: int) -> Iterator[str]:
    folders, remaining = [root], _MOST_ENTRIES
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    remaining -= 1
                    if remaining < 0:
                        return
                    if entry.name in _IGNORED or entry.name.endswith(".pyc"):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    changed = entry.stat(follow_symlinks=False).st_mtime_ns
                    if changed > moment and entry.is_file(follow_symlinks=False):
                        yield os.path.relpath(entry.path, root)
        except OSError:
            continue  # it was deleted meanwhile
