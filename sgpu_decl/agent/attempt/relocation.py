"""Completes a spec on a node of a platform: its writer did not know where the run's folder will be.

Folders in the spec are relative to that of the run. A Python with a relative path is that of an
environment's tree, and one without a folder is searched on the PATH. It starts the tracker, whose
archive has a relative path too.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.system.host_locks import host_lock_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SITE = "site"
_FOLDERS = ("code_dir", "output_dir")


def place(spec: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
    """Return the spec for a run in the folder `run_dir` of this machine.

    Raises:
        OSError: the machine has no place for locks.
    """
    placed = {**spec, "run_dir": run_dir}
    for name in _FOLDERS:
        placed[name] = os.path.join(run_dir, spec[name])
    folder, _, name = spec["python"].rpartition("/")
    if not folder:
        placed["python"] = _find(name)
    elif not os.path.isabs(folder):
        placed["python"] = os.path.join(run_dir, folder, name)
        placed["env"] = {**activated(os.path.join(run_dir, folder), run_dir), **spec["env"]}
    if spec["tracker"] is not None and not os.path.isabs(spec["tracker"]["argv"][0]):
        archive, *words = spec["tracker"]["argv"]
        argv = [placed["python"], os.path.join(run_dir, archive), *words]
        placed["tracker"] = {**spec["tracker"], "argv": argv}
    placed["port_lock_dir"] = spec["port_lock_dir"] or host_lock_folder("ports")
    return placed


def _find(program: str) -> str:
    """Return its path, or the bare name if it is nowhere: the start of a rank then says so."""
    for folder in os.get_exec_path():
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK):
            return path
    return program


LEADING = ("PYTHONPATH", "PYTHONHOME", "PYTHONPLATLIBDIR")
"""Variables by which an interpreter finds other packages, before those of its tree."""
HIDDEN = ("VIRTUAL_ENV", "CONDA_PREFIX", *LEADING)
"""Variables that ranks with a declared environment do not inherit: empty ones have no effect."""


def activated(programs: str, run_dir: str) -> dict[str, str]:
    """Return variables that put the tree's programs first and name the attempt's own folder for
    packages. Variables of the node that lead to other packages do not reach the ranks."""
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "SGPU_SITE": os.path.join(run_dir, SITE),
        **{name: "" for name in HIDDEN if name in os.environ},
    }
