"""Digests of files, cached between commands.

A file is read again when one of its stat values differs. A file that changed within the last two
seconds is read each time: its next change could carry the same time.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sgpu_decl.atomic_files import write_cache

VERSION = 1
YOUNG = 2.0  # seconds
HEAD = 64 * 1024  # bytes; a larger buffer costs more than a small file
CHUNK = 1 << 20  # bytes
LIMIT = 50_000  # entries; a larger cache keeps only those of this command


def digest_file(path: str, read_part: Callable[[], None] = lambda: None) -> str:
    """Return the SHA-256 of a regular file's content in hex. `read_part` is called after each part.

    Raises:
        OSError: the file cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        sha, piece = hashlib.sha256(), os.read(handle, HEAD)
        while piece:
            sha.update(piece)
            read_part()
            piece = os.read(handle, CHUNK)
        return sha.hexdigest()
    finally:
        os.close(handle)


class HashCache:
    """Maps the stat values of a file to the digest of its content."""

    def __init__(self, path: Path | None, digests: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._digests = dict(digests or {})
        self._used: set[str] = set()
        self._dirty = False

    @classmethod
    def open(cls, path: Path | None = None) -> "HashCache":
        """Read the cache; a missing or damaged one is empty."""
        if path is None:
            import platformdirs

            path = Path(platformdirs.user_cache_path("sgpu")) / "hashes.json"
        try:
            stored = json.loads(path.read_bytes())
            digests = stored["files"] if stored["version"] == VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            digests = {}
        return cls(path, digests if isinstance(digests, dict) else {})

    def digest(
        self, path: str, facts: os.stat_result, read_part: Callable[[], None] = lambda: None
    ) -> str:
        """Return the SHA-256 of the regular file `path` in hex; `facts` is the current result of
        `lstat`. `read_part` is called after each part that is read.

        Raises:
            OSError: the file cannot be read.
        """
        if time.time() - max(facts.st_mtime, facts.st_ctime) < YOUNG:
            return digest_file(path, read_part)
        key = (
            f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ctime_ns}"
            f"\0{facts.st_ino}\0{facts.st_dev}"
        )
        self._used.add(key)
        content = self._digests.get(key)
        if not isinstance(content, str) or len(content) != 64:
            content = self._digests[key] = digest_file(path, read_part)
            self._dirty = True
        return content

    def save(self) -> None:
        """Write the cache if it grew."""
        if not self._dirty or self._path is None:
            return
        digests = self._digests
        if len(digests) > LIMIT:
            digests = {key: digests[key] for key in self._used}
        data = json.dumps({"version": VERSION, "files": digests}).encode()
        write_cache(self._path, data)
        self._dirty = False
