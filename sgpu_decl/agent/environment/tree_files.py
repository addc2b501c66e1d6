"""Trees on disk: their own files, whether a tree is whole, and which files were written to.

    pyvenv.cfg  bin/python  lib64 -> lib        what makes it an environment to Python
    lib/python3.11/EXTERNALLY-MANAGED           what tells installers to leave it alone
    lib/python3.11/site-packages/zzzz_sgpu.pth  further folders on the path
    .sgpu-tree.json                             the folders, and the files that are not objects

All files and folders of a tree have one modification time. A folder with another time had entries
made or removed; a file with another time was written to.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import uuid

from sgpu_decl.agent.locks import create_held, open_lock, try_lock
from sgpu_decl.agent.processes import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sgpu_decl.agent.environment.manifest import Manifest

__all__ = [
    "FIXED_NS",
    "MAKING",
    "RECORD",
    "altered",
    "as_bytes",
    "clear",
    "discard",
    "install",
    "making",
    "record_of",
    "remove",
    "shebang",
    "whole",
]

FIXED_NS = 946_684_800 * 10**9  # 2000-01-01: no file that is written now has this time
MAKING = ".making-"
RECORD = ".sgpu-tree.json"
_FORMAT = 1
_LONGEST_SHEBANG = 127  # bytes that every kernel reads


def as_bytes(path: str) -> bytes:
    """Return a path of a manifest as the system has it, whatever the locale."""
    return path.encode("utf-8", "surrogateescape")


def shebang(interpreter: str, rest: bytes) -> bytes:
    """Return the first lines of a script that `interpreter` runs with the arguments `rest`.

    If the kernel cannot read the path, a shell starts it: for Python the same lines are a string,
    as pip and distlib write it.
    """
    program = as_bytes(interpreter)
    line = b"#!" + program + rest + b"\n"
    if b" " not in program and len(line) <= _LONGEST_SHEBANG:
        return line
    quoted = b'"' + program + b'"' if b" " in program else program
    return b"#!/bin/sh\n'''exec' " + quoted + rest + b' "$0" "$@"\n' + b"' '''\n"


def record_of(manifest: Manifest, folders: list[str], sizes: dict[str, int]) -> bytes:
    """Return the text of `.sgpu-tree.json`; `sizes` are those of files that are not objects."""
    record = {
        "v": _FORMAT,
        "manifest": manifest.digest,
        "boot": boot_id(),
        "folders": folders,
        "made": sizes,
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")


def whole(tree: str) -> bool:
    """Whether a tree has all its files. Only folders are looked at.

    A tree from before a reboot does not count: nothing was synced, so a power cut may have emptied
    files, and making it again verifies them. `altered` finds files that were written to.
    """
    top = os.fsencode(tree) + b"/"
    try:
        with open(top + as_bytes(RECORD), "rb") as file:
            record = json.loads(file.read())
        if record["boot"] != boot_id():
            return False
        os.stat(top + b"bin/python")  # the interpreter may be gone
        for folder in record["folders"]:
            status = os.lstat(top + as_bytes(folder))
            if status.st_mtime_ns != FIXED_NS or not stat.S_ISDIR(status.st_mode):
                return False
        for path, size in record["made"].items():
            status = os.lstat(top + as_bytes(path))
            if status.st_mtime_ns != FIXED_NS or status.st_size != size:
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def altered(tree: str, manifest: Manifest) -> list[str]:
    """Return the paths in a tree that were written, made or removed since it was made, sorted.

    It looks at every file, but reads none: it cannot see a change whose time was set back.
    """
    top = os.fsencode(tree)
    missing = {as_bytes(file.path): file for file in (*manifest.files, *manifest.bytecode)}
    changes = set()
    for folder, entry in _walk(top):
        path = folder + entry.name
        status = entry.stat(follow_symlinks=False)
        file = missing.pop(path, None)
        if status.st_mtime_ns != FIXED_NS or (
            file is not None and file.kind in "fx" and status.st_size != file.size
        ):
            changes.add(path)
    return [path.decode("utf-8", "surrogateescape") for path in sorted(changes | set(missing))]


def _walk(top: bytes) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(top + b"/" + folder) as entries:
            for entry in entries:
                yield folder, entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(folder + entry.name + b"/")


def making(folder: str) -> tuple[str, int]:
    """Choose and lock a path for a new tree in `folder`; it is not made yet.

    Returns the path and the descriptor of its lock.
    """
    path = os.path.join(folder, MAKING + uuid.uuid4().hex)
    return path, create_held(path + ".lock")


def clear(folder: str) -> None:
    """Remove the unfinished trees in `folder` of processes that are gone."""
    for name in sorted(os.listdir(folder)):
        if name.startswith(MAKING) and name.endswith(".lock"):
            path = os.path.join(folder, name)
            try:
                lock = open_lock(path)
            except OSError:  # its owner or another process removed it
                continue
            if try_lock(lock):
                remove(path[: -len(".lock")])
            os.close(lock)


def install(place: str, tree: str) -> None:
    """Move a tree from `place` to `tree`, unless there is a whole one by now.

    One that is not whole is moved away: ranks that use it then find the files of the new one under
    the same names.
    """
    aside, lock = making(os.path.dirname(tree))
    try:
        while True:
            try:
                os.rename(place, tree)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if whole(tree) or os.path.lexists(aside):
                return
            with contextlib.suppress(FileNotFoundError):
                os.rename(tree, aside)
    finally:
        remove(aside)
        os.close(lock)


def discard(tree: str) -> None:
    """Remove a tree; nobody sees a part of it at its place.

    Raises:
        OSError: it cannot be removed.
    """
    path, lock = making(os.path.dirname(tree))
    try:
        os.rename(tree, path)
    except FileNotFoundError:
        pass
    finally:
        remove(path)
        os.close(lock)


def remove(path: str) -> None:
    """Remove an unfinished tree and its lock, which the caller holds."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        return  # somebody still writes there: the next process removes it
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".lock")
