"""What runs on a box are made from, by content: code, and environments.

    code/ab/cdef…          the content of a file of code, by its SHA-256
    code/<hex>.json        a list of such files
    packs/                 packed environments, as `content.packs` names them
    environments/objects/  what was in them
    environments/<hex>/    the tree of an environment

All of it is a cache: attempts have copies of their code, and what is missing is sent again. Trees
are used where they lie.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid

from sgpu_decl.agent.box.wire import BoxRefusal, RequestContent
from sgpu_decl.content.code_tree import BadCode, assemble_code, content_path, listed_files
from sgpu_decl.content.packs import manifest_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CODE = "code"
_CHUNK = 1 << 20
_UNUSED = 14 * 86_400.0  # seconds
_YOUNG = 86_400.0  # seconds for which a content may be on its way into a list
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-_")


def code_manifest(root: str, digest: str) -> bytes:
    """The list of the files of code. Raises BoxRefusal: it was not sent, or is damaged."""
    try:
        with open(os.path.join(root, CODE, f"{digest}.json"), "rb") as file:
            manifest = file.read()
    except FileNotFoundError:
        manifest = b""
    if hashlib.sha256(manifest).hexdigest() != digest:
        raise BoxRefusal("code_missing", f"the code {digest[:12]} is not there")
    return manifest


def code_lacks(
    root: str, message: dict[str, Any], content: RequestContent
) -> tuple[dict[str, Any], bytes]:
    """Take the list of the files of code with the digest `code`; `lacks` are the digests of the
    contents that are not there. Without a list, `unknown` says whether it is not there either."""
    digest = str(message["code"])
    if content.left:
        manifest = content.read(content.left)
        if hashlib.sha256(manifest).hexdigest() != digest:
            raise BoxRefusal("code_damaged", "the list of files was damaged on its way")
        _write(os.path.join(root, CODE, f"{digest}.json"), manifest)
    else:
        try:
            manifest = code_manifest(root, digest)
        except BoxRefusal:
            return {"unknown": True}, b""
        os.utime(os.path.join(root, CODE, f"{digest}.json"))
    folder = os.path.join(root, CODE)
    lacks: dict[str, None] = {}
    for _, key, size, _, target in _listed(manifest):
        if target is None and key not in lacks and _size(content_path(folder, key)) != size:
            lacks[key] = None
    return {"lacks": list(lacks)}, b""


def code_objects(
    root: str, message: dict[str, Any], content: RequestContent
) -> tuple[dict[str, Any], bytes]:
    """Take contents: `objects` has the SHA-256 and the size of each, in their order."""
    folder = os.path.join(root, CODE)
    for digest, size in message["objects"]:
        path = content_path(folder, digest)
        if _store(path, size, content) != digest:
            os.unlink(path)
            raise BoxRefusal("code_damaged", f"the content {digest[:12]} was damaged on its way")
    return {}, b""


def copy_code(root: str, digest: str, folder: str) -> None:
    """Make a copy of code in a new folder. Raises BoxRefusal, with the code `code_missing`: it has
    to be sent again; what was damaged of it was deleted."""
    manifest = code_manifest(root, digest)
    contents = os.path.join(root, CODE)
    try:
        assemble_code(manifest, contents, folder)
    except BadCode as error:
        if error.content is not None:
            os.unlink(error.content)
        raise BoxRefusal("code_missing", str(error)) from None
    except FileNotFoundError as error:
        if not str(error.filename).startswith(contents):
            raise
        raise BoxRefusal("code_missing", f"a content of the code {digest[:12]} is gone") from None


def collect_code(root: str) -> int:
    """Delete the lists of code that no launch has used for a while, and the contents that no other
    list has; return the bytes. A launch that needs one of them has it sent again."""
    folder = os.path.join(root, CODE)
    oldest = time.time() - _UNUSED
    kept: set[str] = set()
    size = 0
    for entry in _entries(folder):
        if entry.name.endswith(".json"):
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)
            else:
                with open(entry.path, "rb") as file:
                    kept.update(key for _, key, _, _, _ in _listed(file.read()))
    for part in _entries(folder):
        for entry in _entries(part.path) if part.is_dir() else ():
            facts = entry.stat()
            if part.name + entry.name not in kept and facts.st_mtime < time.time() - _YOUNG:
                os.unlink(entry.path)
                size += facts.st_size
    return size


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []


def list_packs(root: str, _: dict[str, Any], __: RequestContent) -> tuple[dict[str, Any], bytes]:
    """`files` has the size of each pack, index and manifest, by its name."""
    folder = os.path.join(root, "packs")
    os.makedirs(folder, 0o700, exist_ok=True)
    return {"files": {entry.name: entry.stat().st_size for entry in os.scandir(folder)}}, b""


def put_pack(
    root: str, message: dict[str, Any], content: RequestContent
) -> tuple[dict[str, Any], bytes]:
    """Take a file of the folder of packs by its `name`."""
    name = str(message["name"])
    if not name or not _PLAIN.issuperset(name) or name.startswith("."):
        raise BoxRefusal("bad_name", f"{name!r} is no name of a pack")
    _store(os.path.join(root, "packs", name), content.left, content)
    return {}, b""


def make_tree(
    root: str, message: dict[str, Any], _: RequestContent
) -> tuple[dict[str, Any], bytes]:
    """Make the tree of the `environment` with that digest, in hex; `tree` is its path."""
    digest = str(message["environment"])
    folder = os.path.join(root, "environments")
    tree, packs = os.path.join(folder, digest), os.path.join(root, "packs")
    os.makedirs(folder, 0o700, exist_ok=True)
    argv = [sys.executable, "-I", "-S", _agent(), "hydrate", "--digest", f"sha256:{digest}"]
    argv += ["--manifest", os.path.join(packs, manifest_name(digest)), "--packs", packs]
    argv += ["--objects", os.path.join(folder, "objects"), "--tree", tree]
    argv += ["--python", sys.executable]
    made = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if made.returncode:
        lines = made.stdout.splitlines() or [b"{}"]
        answer = json.loads(lines[-1])
        kind = "environment_misfit" if answer.get("error") == "mismatch" else "environment_damaged"
        raise BoxRefusal(kind, str(answer.get("message") or "the environment cannot be made"))
    return {"tree": tree}, b""


def _agent() -> str:
    """The archive that this program runs from."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _listed(manifest: bytes) -> list[tuple[str, str, int, bool, str | None]]:
    try:
        return listed_files(manifest)
    except BadCode as error:
        raise BoxRefusal("code_damaged", str(error)) from None


def _store(path: str, size: int, content: RequestContent) -> str:
    """Write so many bytes to a file, whole or not at all; return their SHA-256."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    draft = f"{path}.{uuid.uuid4().hex[:8]}"
    hashed = hashlib.sha256()
    try:
        with open(draft, "wb", buffering=0) as file:
            while size:
                part = content.read(min(size, _CHUNK))
                hashed.update(part)
                size -= len(part)
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
        os.rename(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise
    return hashed.hexdigest()


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    draft = f"{path}.{uuid.uuid4().hex[:8]}"
    with open(draft, "wb") as file:
        file.write(data)
    os.rename(draft, path)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


OPERATIONS = {
    "code_lacks": code_lacks,
    "code_objects": code_objects,
    "list_packs": list_packs,
    "put_pack": put_pack,
    "make_tree": make_tree,
}
