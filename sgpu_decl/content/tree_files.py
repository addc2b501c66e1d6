"""Trees on disk: our own files in a tree, and checks that it is complete and unaltered.

    pyvenv.cfg  bin/python  lib64 -> lib        make it a virtual environment
    lib/python3.11/EXTERNALLY-MANAGED           keeps installers away
    lib/python3.11/site-packages/zzzz_sgpu.pth  further folders on the path
    .sgpu-tree.json                             the folders, and the files that are not objects

Every file and folder of a tree has one fixed modification time. A folder with another time had
entries added or removed; a file with another time was written to. Only the folders of bytecode are
open: Python adds what is missing there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import uuid

from sgpu_decl.agent.system.locks import create_held, open_lock, try_lock
from sgpu_decl.agent.system.processes import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sgpu_decl.content.manifest import Manifest

FIXED_NS = 946_684_800 * 10**9  # 2000-01-01, earlier than any new file
MAKING = ".making-"
RECORD = ".sgpu-tree.json"
_FORMAT = 1
_LONGEST_SHEBANG = 127  # bytes that every kernel reads


def as_bytes(path: str) -> bytes:
    """A path of a manifest as bytes, independent of the locale."""
    return path.encode("utf-8", "surrogateescape")


def bytecode_path(source: str, tag: str) -> str:
    """Where Python looks for the bytecode of a source."""
    folder, slash, name = source.rpartition("/")
    return f"{folder}{slash}__pycache__/{name[: -len('.py')]}.{tag}.pyc"


def is_of_bytecode(folder: bytes) -> bool:
    """Whether that is the path of a folder that Python keeps bytecode in."""
    return folder.rstrip(b"/").rpartition(b"/")[2] == b"__pycache__"


def shebang(interpreter: str, rest: bytes) -> bytes:
    """The first lines of a script for `interpreter`; `rest` are its arguments.

    Where the kernel would not accept the path, a shell starts it: for Python the same lines are a
    string (as pip and distlib write it).
    """
    program = as_bytes(interpreter)
    line = b"#!" + program + rest + b"\n"
    if b" " not in program and len(line) <= _LONGEST_SHEBANG:
        return line
    quoted = b'"' + program + b'"' if b" " in program else program
    return b"#!/bin/sh\n'''exec' " + quoted + rest + b' "$0" "$@"\n' + b"' '''\n"


def record_of(manifest: Manifest, folders: list[str], sizes: dict[str, int]) -> bytes:
    """The text of `.sgpu-tree.json`; `sizes` are the sizes of the files that are not objects."""
    record = {
        "v": _FORMAT,
        "manifest": manifest.digest,
        "boot": boot_id(),
        "folders": [path for path in folders if not is_of_bytecode(as_bytes(path))],
        "made": sizes,
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")


def whole(tree: str) -> bool:
    """Whether a tree is complete, by checking its folders only.

    A tree from before a reboot does not count: nothing was synced, so a power cut may have emptied
    its files, and making it again verifies them. Writes into files are found by `altered`.
    """
    top = os.fsencode(tree) + b"/"
    try:
        with open(top + as_bytes(RECORD), "rb") as file:
            record = json.loads(file.read())
        if record["boot"] != boot_id():
            return False
        os.stat(top + b"bin/python")  # a link to an interpreter that may be missing
        for folder in record["folders"]:
            facts = os.lstat(top + as_bytes(folder))
            if facts.st_mtime_ns != FIXED_NS or not stat.S_ISDIR(facts.st_mode):
                return False
        for path, size in record["made"].items():
            facts = os.lstat(top + as_bytes(path))
            if facts.st_mtime_ns != FIXED_NS or facts.st_size != size:
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def altered(tree: str, manifest: Manifest) -> list[str]:
    """The paths in a tree that were written, added or removed since it was made, sorted.

    No file is read: a write that restores the modification time is not noticed.
    """
    top = os.fsencode(tree)
    missing = {as_bytes(file.path): file for file in (*manifest.files, *manifest.bytecode)}
    paths = set()
    for folder, entry in _walk(top):
        path = folder + entry.name
        facts = entry.stat(follow_symlinks=False)
        file = missing.pop(path, None)
        if is_of_bytecode(path) or (file is None and is_of_bytecode(folder)):
            continue
        if facts.st_mtime_ns != FIXED_NS or (
            file is not None and file.kind in "fx" and facts.st_size != file.size
        ):
            paths.add(path)
    return [path.decode("utf-8", "surrogateescape") for path in sorted(paths | set(missing))]


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
    """Reserve a path in `folder` for a tree that is being made; the path does not exist yet.

    Returns the path and the descriptor of its lock.
    """
    path = os.path.join(folder, MAKING + uuid.uuid4().hex)
    return path, create_held(path + ".lock")


def clear(folder: str) -> None:
    """Remove the unfinished trees of ended processes from `folder`."""
    for name in sorted(os.listdir(folder)):
        if name.startswith(MAKING) and name.endswith(".lock"):
            path = os.path.join(folder, name)
            try:
                lock = open_lock(path)
            except OSError:  # another process removed it
                continue
            if try_lock(lock):
                remove(path[: -len(".lock")])
            os.close(lock)


def install(place: str, tree: str) -> None:
    """Move a finished tree from `place` to `tree`, unless a complete tree exists there.

    An incomplete one is replaced at once: ranks that use it find the new files under the same
    names.
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
    """Remove a tree: it is renamed first, so nobody sees a part of it.

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
    """Remove an unfinished tree at `path`, and its lock, which the caller holds."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        return  # a process still writes there; the next `clear` removes it
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".lock")
