"""The folder that `SGPU_PREVIOUS_OUTPUT_DIR` names: what the newest earlier start of a run left.

Ranks that are started again find what they left themselves: on every node, as soon as one node has
a file of them. Agent 0 decides that, or nodes would go on from different starts. Else it is the
output of the newest earlier attempt of the same address that left something: on the machine of
apply it lies in a folder beside, on other machines `agent.node.earlier_output` has brought it here.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["BROUGHT", "holds_files", "left_output", "previous_output"]

BROUGHT = "previous_output"
"""The folder of a run's own on a node that the files are brought to."""


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
    if not spec["project_dir"]:  # another machine than that of apply
        return None
    run = os.path.dirname(run_dir)
    for number in sorted(_numbers(run), reverse=True):
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


def _numbers(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
