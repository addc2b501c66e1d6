"""The environments of runs on a box.

    packs/                 packed environments, as `content.packs` names them (`file_requests`)
    environments/objects/  what was in them
    environments/<hex>/    the tree of an environment, which ranks use where it lies
    environments/lock      shared by who makes a tree, exclusive for gc

Packs and objects are a cache: what is missing is sent again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager, suppress

from sgpu_decl.agent.box.box_files import entries
from sgpu_decl.agent.box.wire import BoxRefusal, RequestContent
from sgpu_decl.agent.launching.agent_launch import AGENT
from sgpu_decl.agent.system.locks import open_lock
from sgpu_decl.content.packs import BadPack, Index, index_name, manifest_name
from sgpu_decl.content.python_match import this_python
from sgpu_decl.content.tree_files import discard, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    Answer = tuple[dict[str, Any], bytes]

TREES = "environments"
_PACKS = "packs"
_TREE = re.compile(r"[0-9a-f]{64}")
_MISSING = ("damaged", "packs", "manifest")  # errors of `content.hydrate_program`


def python_of(_root: str, _message: dict[str, Any], _content: object) -> Answer:
    """`python` is what environments have to be made for, see `content.manifest.Python`."""
    return {"python": this_python()._asdict()}, b""


def make_tree(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Make the tree of the `environment` with that digest, in hex, unless it is there; `tree` is
    its path. Refuses with `environment_missing` what has to be sent first; what is damaged of it
    was deleted."""
    digest, folder = str(message["environment"]), os.path.join(root, TREES)
    if not _TREE.fullmatch(digest):
        raise BoxRefusal("bad_name", f"{digest!r} is no name of an environment")
    tree, packs = os.path.join(folder, digest), os.path.join(root, _PACKS)
    with _lock(folder, fcntl.LOCK_SH):
        with suppress(FileNotFoundError):
            os.utime(os.path.join(packs, manifest_name(digest)))  # when it was used last
        if not whole(tree):
            _hydrate(digest, folder, packs, tree)
    return {"tree": tree}, b""


def _hydrate(digest: str, folder: str, packs: str, tree: str) -> None:
    argv = [sys.executable, "-I", "-S", AGENT, "hydrate", "--digest", f"sha256:{digest}"]
    argv += ["--manifest", os.path.join(packs, manifest_name(digest)), "--packs", packs]
    argv += ["--objects", os.path.join(folder, "objects"), "--tree", tree]
    argv += ["--python", sys.executable]
    made = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if made.returncode == 0:
        return
    answer = json.loads((made.stdout.splitlines() or [b"{}"])[-1])
    problem = answer.get("error")
    objects = answer.get("objects", ())
    damaged = [os.path.join(folder, "objects", key[:2], key) for key in objects]
    for path in (*damaged, *answer.get("damaged", ())):
        with suppress(FileNotFoundError):
            os.unlink(path)
    if problem == "system":
        raise OSError(answer["errno"], answer["message"])
    code = "environment_missing" if problem in _MISSING else "environment_damaged"
    if problem == "mismatch":
        code = "environment_misfit"
    raise BoxRefusal(code, str(answer.get("message") or "the environment cannot be made"))


def collect_environments(root: str, used: Collection[str], oldest: float) -> int:
    """Delete the trees and packs of environments that no launch has used since then, and the
    objects that no other tree has; return the bytes of packs and objects.

    Args:
        used: the names of trees that stay: of runs that are active.
    """
    folder, packs = os.path.join(root, TREES), os.path.join(root, _PACKS)
    if not os.path.isdir(folder):
        return 0
    size = 0
    with _lock(folder, fcntl.LOCK_EX):
        kept = set(used)
        for entry in entries(packs):
            if entry.name.endswith(".manifest") and entry.stat().st_mtime >= oldest:
                kept.add(entry.name.partition(".")[0])
        for entry in entries(folder):
            if _TREE.fullmatch(entry.name) and entry.name not in kept:
                discard(entry.path)
        named = {name for digest in kept for name in _files(packs, digest)}
        for entry in entries(packs):
            if entry.name not in named and entry.stat().st_mtime < oldest:
                size += _delete(entry)
        for part in entries(os.path.join(folder, "objects")):
            for entry in entries(part.path):
                if entry.stat().st_nlink == 1:  # no tree has it; its pack may
                    size += _delete(entry)
    return size


def _files(packs: str, digest: str) -> list[str]:
    """The packs of an environment, and what lists them."""
    own = [manifest_name(digest), index_name(digest)]
    try:
        with open(os.path.join(packs, own[1]), "rb") as file:
            return [*own, *Index.unchecked(file.read(), f"sha256:{digest}").files]
    except (FileNotFoundError, BadPack):
        return own  # what it needs of them is sent again


def _delete(entry: os.DirEntry[str]) -> int:
    size = entry.stat().st_size
    os.unlink(entry.path)
    return size


@contextmanager
def _lock(folder: str, how: int) -> Iterator[None]:
    os.makedirs(folder, 0o700, exist_ok=True)
    lock = open_lock(os.path.join(folder, "lock"))
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


OPERATIONS = {"python_of": python_of, "make_tree": make_tree}
