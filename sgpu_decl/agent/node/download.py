"""Downloads files of the launch folder to the node's own disk.

They were uploaded a moment ago, so a node may see them late, or not whole. Each file has a SHA-256,
and is waited for.
"""

from __future__ import annotations

import hashlib
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sgpu_decl.agent.node.stop_request import StopRequest

__all__ = ["fetch"]

_PATIENCE = 60.0  # seconds, for all files together
_FIRST, _LONGEST = 0.05, 2.0  # seconds between two looks
_CHUNK = 1 << 20


def fetch(
    source: str, files: Mapping[str, str], folder: str, stopping: StopRequest, *,
    patience: float = _PATIENCE,
) -> str | None:  # fmt: skip
    """Copy files into a folder; say which is missing in the end, if one is.

    Args:
        files: their names, each with its SHA-256 in hex.
    """
    deadline = time.monotonic() + patience
    pause = _FIRST
    waiting = dict(files)
    while True:
        problems = {}
        for name, digest in list(waiting.items()):
            problem = _copy(os.path.join(source, name), os.path.join(folder, name), digest)
            if problem is None:
                del waiting[name]
            else:
                problems[name] = problem
        if not waiting or stopping.asked:
            return None
        if time.monotonic() > deadline:
            name, problem = next(iter(problems.items()))
            return f"`{name}` of the launch folder {problem}, for {patience:g} s"
        stopping.wait(pause)
        pause = min(2 * pause, _LONGEST)


def _copy(source: str, target: str, digest: str) -> str | None:
    """Copy a file; say what is wrong with it, if something is."""
    hashed = hashlib.sha256()
    try:
        with open(source, "rb") as reading, open(target, "wb") as writing:
            while chunk := reading.read(_CHUNK):
                hashed.update(chunk)
                writing.write(chunk)
    except OSError as error:
        return f"cannot be read here ({error.strerror})"
    return None if hashed.hexdigest() == digest else "has another content than the one uploaded"
