"""What ranks leave for the next start of a run: `SGPU_PREVIOUS_OUTPUT_DIR`, and what is not in it.

Ranks that are started again find what they left themselves: on every node, as soon as one node has
a file of them. Agent 0 decides that, or nodes would go on from different starts. Else it is the
output of the newest earlier attempt of the same address that left something: on a machine with
slots it lies in a folder beside, on nodes of a platform `agent.node.earlier_output` brings it.

Files that ranks wrote into their working folder are not in it: that folder is the attempt's own
copy of the code.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt.attempt_files import SPEC, numbers_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

BROUGHT = "previous_output"
"""The folder of a run's own on a node that the files are brought to."""

_SHOWN = 3
_MOST_ENTRIES = 50_000  # larger trees are not searched to the end
_IGNORED = ("__pycache__", ".git")


def left_output(spec: Mapping[str, Any]) -> bool:
    """Whether ranks of this node left a file that the next start of a run with `resume` finds."""
    return bool(spec.get("resume")) and holds_files(_own(spec))


def previous_output(spec: Mapping[str, Any], *, own: bool) -> str | None:
    """Return the folder, None where no start before left a file.

    Args:
        own: an earlier start of this attempt left a file, here or on another node.
    """
    if own:
        return _own(spec)
    run_dir: str = spec["run_dir"]
    brought = os.path.join(run_dir, BROUGHT)
    if holds_files(brought):
        return brought
    if not (
        spec["project_dir"] or (spec.get("gpus") or {}).get("lock_dir")
    ):  # a node of a platform
        return None
    run = os.path.dirname(run_dir)
    for number in reversed(numbers_in(run)):
        folder = os.path.join(run, str(number), "output")
        if number < spec["attempt"] and holds_files(folder):
            return folder
    return None


def _own(spec: Mapping[str, Any]) -> str:
    folder: str = os.path.join(spec["run_dir"], spec["output_dir"])
    return folder


def holds_files(folder: str) -> bool:
    """Whether there is a file in a folder, or below it."""
    return any(files for _, _, files in os.walk(folder))


def working_files(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the number of files that ranks wrote into their working folder, and the first names.

    None if there are none. The spec is staged last, so newer files were written by the run.
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
