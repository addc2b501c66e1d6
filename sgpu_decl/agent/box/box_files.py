"""Files of the stores of a box."""

from __future__ import annotations

import hashlib
import os
import uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def store(path: str, parts: Iterable[bytes]) -> str:
    """Write a file, whole or not at all; return its SHA-256."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    draft = f"{path}.{uuid.uuid4().hex[:8]}"
    hashed = hashlib.sha256()
    try:
        with open(draft, "wb") as file:
            for part in parts:
                hashed.update(part)
                file.write(part)
        os.rename(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise
    return hashed.hexdigest()


def entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing if it is not there."""
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []
