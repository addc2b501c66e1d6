"""The code of runs on a box, by content.

    code/ab/cdef…     the content of a file, by its SHA-256
    code/<hex>.json   a list of such files

It is a cache: attempts have copies, and what is missing is sent again.
"""

from __future__ import annotations

import hashlib
import os
import time

from sgpu_decl.agent.box.box_files import entries, store
from sgpu_decl.agent.box.wire import BoxRefusal, RequestContent
from sgpu_decl.content.code_tree import BadCode, assemble_code, content_path, listed_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CODE = "code"
_YOUNG = 86_400.0  # seconds for which a content may be on its way into a list


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
        store(os.path.join(root, CODE, f"{digest}.json"), [manifest])
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
        if store(path, content.parts(size)) != digest:
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


def collect_code(root: str, oldest: float) -> int:
    """Delete the lists of code that no launch has used since then, and the contents that no other
    list has; return the bytes. A launch that needs one of them has it sent again."""
    folder = os.path.join(root, CODE)
    kept: set[str] = set()
    size = 0
    for entry in entries(folder):
        if entry.name.endswith(".json"):
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)
            else:
                with open(entry.path, "rb") as file:
                    kept.update(key for _, key, _, _, _ in _listed(file.read()))
    for part in entries(folder):
        for entry in entries(part.path) if part.is_dir() else ():
            facts = entry.stat()
            if part.name + entry.name not in kept and facts.st_mtime < time.time() - _YOUNG:
                os.unlink(entry.path)
                size += facts.st_size
    return size


def _listed(manifest: bytes) -> list[tuple[str, str, int, bool, str | None]]:
    try:
        return listed_files(manifest)
    except BadCode as error:
        raise BoxRefusal("code_damaged", str(error)) from None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


OPERATIONS = {"code_lacks": code_lacks, "code_objects": code_objects}
