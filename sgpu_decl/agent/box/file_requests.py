"""Files of the root, which other machines may have mounted, too: see `system.folder_files`.

A request names a file or a folder by its whole `path`.
"""

from __future__ import annotations

import errno
import os
import tarfile
import tempfile
import time
import zlib
from functools import partial

from sgpu_decl.agent.box.wire import BoxRefusal, RequestContent
from sgpu_decl.agent.system.folder_files import (
    clock_ahead,
    create_file,
    delete_path,
    file_draft,
    find_entry,
    list_folder,
    put_file,
)
from sgpu_decl.content.code_tree import CODE_TOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[dict[str, Any], bytes]

_PIECE = 8 << 20  # bytes of one answer


def file_time(root: str, _: dict[str, Any], __: RequestContent) -> Answer:
    """The `time` by the clock that dates files."""
    return {"time": time.time() + clock_ahead(root)}, b""


def file_stat(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """`entry` is what has that path, null for nothing."""
    return {"entry": find_entry(_inside(root, message))}, b""


def file_list(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """The `entries` of a folder with names `after` one."""
    return {"entries": list_folder(_inside(root, message), message["after"])}, b""


def file_get(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """A piece of a file, from the byte `at`; `size` is that of the whole file, and `version` tells
    it from another one that takes its place: the next request has it."""
    with open(_inside(root, message), "rb") as file:
        facts = os.fstat(file.fileno())
        version = [facts.st_ino, facts.st_mtime_ns, facts.st_size]
        if message["version"] not in (None, version):
            raise OSError(errno.ESTALE, "it was replaced meanwhile", message["path"])
        file.seek(message["at"])
        return {"version": version, "size": facts.st_size}, file.read(_PIECE)


def file_put(root: str, message: dict[str, Any], content: RequestContent) -> Answer:
    """Write a file; with `new`, where nothing has that path: `made` says whether it did. That is
    not asked twice: a lost answer may have been yes."""
    path = _inside(root, message)
    draft = file_draft(path, content.parts(content.left))
    if message["new"]:
        return {"made": create_file(path, draft)}, b""
    put_file(path, draft)
    return {"made": True}, b""


def file_folder(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Make a folder, and those above it."""
    os.makedirs(_inside(root, message), exist_ok=True)
    return {}, b""


def file_delete(root: str, message: dict[str, Any], _: RequestContent) -> Answer:
    """Delete a file or a folder."""
    delete_path(_inside(root, message))
    return {}, b""


def code_archive(root: str, message: dict[str, Any], content: RequestContent) -> Answer:
    """Make an archive of code (`content.code_tree`) from the archive `base`, without the `files` of
    it that are `gone`, and with others: each has a path, its bytes, which follow, whether it is
    executable, and what it leads to. Nodes compare it with its digest."""
    path, base = _inside(root, message), _inside(root, message, "base")
    gone = {f"{CODE_TOP}/{name}" for name in message["gone"]}
    with tempfile.TemporaryFile(dir=os.path.dirname(path)) as made:
        try:
            with (
                tarfile.open(base, "r:gz", encoding="utf-8") as old,
                tarfile.open(fileobj=made, mode="w:gz", compresslevel=1, encoding="utf-8") as new,
            ):
                for member in old:
                    if member.name not in gone:
                        new.addfile(member, old.extractfile(member) if member.isreg() else None)
                for file in message["files"]:
                    new.addfile(_member(*file), content)  # type: ignore[arg-type]  # it has `read`
        except (EOFError, tarfile.TarError, zlib.error) as error:
            raise BoxRefusal("code_damaged", f"`{base}`: {error}") from None
        made.seek(0)
        put_file(path, file_draft(path, iter(partial(made.read, 1 << 20), b"")))
    return {}, b""


def _member(name: str, size: int, executable: bool, target: str | None) -> tarfile.TarInfo:  # noqa: FBT001
    member = tarfile.TarInfo(f"{CODE_TOP}/{name}")
    if target is not None:
        member.type, member.linkname = tarfile.SYMTYPE, target
    member.size = size
    member.mode = 0o755 if executable else 0o644
    return member


def _inside(root: str, message: dict[str, Any], name: str = "path") -> str:
    path = os.path.normpath(str(message[name]))
    if path != root and not path.startswith(f"{root.rstrip('/')}/"):
        raise BoxRefusal("bad_folder", f"`{path}` is not in `{root}`")
    return path


OPERATIONS = {
    "file_time": file_time, "file_stat": file_stat, "file_list": file_list, "file_get": file_get,
    "file_put": file_put, "file_folder": file_folder, "file_delete": file_delete,
    "code_archive": code_archive,
}  # fmt: skip
