"""The interpreter that ranks find as `python3`, where a platform starts nodes with another one."""

from __future__ import annotations

import os
import shlex


def python_folder(python: str, run: str) -> str:
    """Return a folder in which `python3`, as ranks are started, is that interpreter; it may be made
    below `run`."""
    folder, name = os.path.split(python)
    if name == "python3":
        return folder
    own = os.path.join(run, "bin")
    os.makedirs(own, exist_ok=True)
    script = os.path.join(own, "python3")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
    os.chmod(script, 0o700)
    return own
