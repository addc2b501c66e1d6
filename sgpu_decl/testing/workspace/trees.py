"""Paths of the API as files on disk, and answers made of files."""

import mimetypes
import re
import shutil
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

from sgpu_decl.testing.workspace.clock import changed
from sgpu_decl.testing.workspace.routes import ApiError, Request, Response, invalid

__all__ = ["file_answer", "located", "normal", "removed"]

_BLOCK = 1 << 18


def normal(path: str) -> str:
    """A path without a slash at its end. Raises ApiError, 400, for one that is not absolute."""
    if not path.startswith("/"):
        raise invalid(f"Path ({path}) doesn't start with '/'")
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise invalid(f"Path ({path}) is not a valid path")
    if any(len(part.encode()) > 255 for part in parts):
        raise invalid(f"Path ({path}) has a name that is longer than 255 bytes")
    return "/" + "/".join(parts)


def located(root: Path, path: str) -> Path:
    """Where a normal path lies below the folder of its tree."""
    return root / path.removeprefix("/")


def removed(path: Path, incoming: Path) -> None:
    """Delete a file, or a folder with all that is in it: gone at once for who looks."""
    if path.is_dir() and not path.is_symlink():
        grave = incoming / uuid4().hex
        path.replace(grave)
        shutil.rmtree(grave)
    else:
        path.unlink()


def file_answer(request: Request, path: Path) -> Response:
    """The bytes of a file, or the range of them that is asked for."""
    size = path.stat().st_size
    headers = {
        "Content-Type": mimetypes.guess_type(path.name)[0] or "application/octet-stream",
        "Last-Modified": formatdate(changed(path.stat()) / 1000, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range") or "")
    if wanted is None or not any(wanted.groups()):
        return Response(stream=_blocks(path, 0, size), length=size, headers=headers)
    first, last = wanted.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        message = f"The range {wanted.group()} is outside of the file's {size} bytes."
        bounds = {"Content-Range": f"bytes */{size}"}
        raise ApiError(416, "INVALID_PARAMETER_VALUE", message, headers=bounds)
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return Response(
        status=206, stream=_blocks(path, start, end - start), length=end - start, headers=headers
    )


def _blocks(path: Path, start: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while length and (block := file.read(min(length, _BLOCK))):
            length -= len(block)
            yield block
