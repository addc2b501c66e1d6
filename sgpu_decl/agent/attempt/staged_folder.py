"""Attempt folders on the machine that runs them, before a supervisor is there and after it has
gone: staged, started, given up, freed.

NUMBER                  the folder of an attempt
NUMBER.staging-XXXX     one that is being staged
NUMBER.discarded        one that is being deleted
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress

from sgpu_decl.agent.attempt import attempt_status
from sgpu_decl.agent.attempt.attempt_files import (
    LAUNCH_LOCK,
    OUTCOME,
    SPEC,
    SUPERVISOR_LOCK,
    read_json,
)
from sgpu_decl.agent.system.locks import open_lock, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DRAFT = ".staging-"
DISCARDED = ".discarded"

_STARTING = 30.0  # seconds in which an agent has begun, or has failed
_PAUSE = 0.01


def holds_launch(folder: str | os.PathLike[str], token: str) -> bool:
    """Whether a folder is that of a launch; another one may have had its address and number."""
    spec = read_json(os.fspath(folder), SPEC)
    return spec is not None and spec.get("token") == token


def launched(folder: str | os.PathLike[str]) -> bool:
    """Whether an attempt was started, or is over."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (SUPERVISOR_LOCK, OUTCOME))


def active(folder: str | os.PathLike[str]) -> bool:
    """Whether something runs for an attempt, or waits to."""
    state = attempt_status.read_attempt(os.fspath(folder))["state"]
    return state in ("queued", "starting", "running", "stopping")


def new_draft(folder: str) -> str:
    """A path beside the folder of an attempt, to stage it in."""
    return f"{folder}{DRAFT}{os.urandom(4).hex()}"


def delete_drafts(folder: str) -> None:
    """Delete what others began to stage for an attempt."""
    above, name = os.path.split(folder)
    for entry in _names(above):
        if entry.startswith(f"{name}{DRAFT}"):
            shutil.rmtree(os.path.join(above, entry), ignore_errors=True)


def give_up(folder: str | os.PathLike[str]) -> bool:
    """Delete an attempt that was staged, so that nobody can start it any more. False where somebody
    has started it, or is about to: it stays."""
    try:
        claim = open_lock(os.path.join(folder, LAUNCH_LOCK))
    except FileNotFoundError:
        return True
    deadline = time.monotonic() + _STARTING
    try:
        while not try_lock(claim):  # an agent starts, or fails to
            if launched(folder) or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        if launched(folder):
            return False
        discard(folder)
    finally:
        os.close(claim)
    return True


def discard(folder: str | os.PathLike[str]) -> None:
    """Delete an attempt's folder. It is renamed first, so that no half of it is left under its name
    if this process is killed meanwhile."""
    aside = os.fspath(folder) + DISCARDED
    if os.path.exists(aside):
        shutil.rmtree(aside)
    with suppress(FileNotFoundError):
        os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)


def size_of(folder: str | os.PathLike[str]) -> int:
    """Bytes that the folder of an attempt takes up on the disk."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            status = os.lstat(os.path.join(root, name))
            total += min(status.st_size, status.st_blocks * 512)  # cut logs have holes
    return total


def collect_left(runs: str, age: float) -> int:
    """Delete what killed processes left beside the attempts of all runs below a folder, if nothing
    was done to it for `age` seconds; return the bytes."""
    size = 0
    for folder in _left(runs, time.time() - age):
        size += size_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return size


def _left(runs: str, oldest: float) -> Iterator[str]:
    for run in _names(runs):
        for name in _names(os.path.join(runs, run)):
            folder = os.path.join(runs, run, name)
            if name.endswith(DISCARDED) or (DRAFT in name and _abandoned(folder, oldest)):
                yield folder


def _abandoned(draft: str, oldest: float) -> bool:
    """Whether an attempt has not been staged any further for so long that whoever did it was
    killed. An apply that was stopped all that time finds it gone, and launches nothing."""
    inside = (os.path.join(root, name) for root, _, names in os.walk(draft) for name in names)
    folders = (root for root, _, _ in os.walk(draft))
    try:
        return all(os.lstat(path).st_mtime < oldest for path in (*folders, *inside))
    except FileNotFoundError:
        return False  # somebody else deletes it, or it has its name now


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
