"""Digests of files, remembered between commands.

A file is read again when anything that the file system says of it differs. One that changed within
the last two seconds is read each time: its next change could carry the same time.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.regular_files import open_regular

__all__ = ["HashCache", "digest_file"]

VERSION = 1
YOUNG = 2.0  # seconds
LIMIT = 50_000  # entries; beyond it only those of this command are kept


def digest_file(path: str) -> str:
    """Return the SHA-256 of a file's content in hex.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class HashCache:
    """Maps what the file system says of a file to the digest of its content."""

    def __init__(self, path: Path | None, known: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._known = dict(known or {})
        self._used: set[str] = set()
        self._dirty = False

    @classmethod
    def open(cls, path: Path | None = None) -> "HashCache":
        """Read the cache; one that is missing or damaged is an empty one."""
        if path is None:
            import platformdirs

            path = Path(platformdirs.user_cache_path("sgpu")) / "hashes.json"
        try:
            stored = json.loads(path.read_bytes())
            known = stored["files"] if stored["version"] == VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            known = {}
        return cls(path, known if isinstance(known, dict) else {})

    def digest(self, path: str, facts: os.stat_result) -> str:
        """Return the SHA-256 of `path` in hex; `facts` is what `lstat` just said of it.

        Raises:
            OSError: the file cannot be read.
        """
        if time.time() - max(facts.st_mtime, facts.st_ctime) < YOUNG:
            return digest_file(path)
        key = "\0".join(
            (
                path,
                str(facts.st_size),
                str(facts.st_mtime_ns),
                str(facts.st_ctime_ns),
                str(facts.st_ino),
                str(facts.st_dev),
            )
        )
        self._used.add(key)
        found = self._known.get(key)
        if not isinstance(found, str) or len(found) != 64:
            found = self._known[key] = digest_file(path)
            self._dirty = True
        return found

    def save(self) -> None:
        """Write the cache if it grew; a folder that cannot be written costs speed only."""
        if not self._dirty or self._path is None:
            return
        known = self._known
        if len(known) > LIMIT:
            known = {key: known[key] for key in self._used}
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            data = json.dumps({"version": VERSION, "files": known}).encode()
            write_atomic(self._path, data, durable=False)
        self._dirty = False
