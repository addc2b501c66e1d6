"""What was seen of an environment's files, kept between captures, in files for each interpreter.

A file is read again when anything that the file system says of it differs. One that changed within
two seconds before it was read is never remembered: its next change could carry the same time.
"""

import contextlib
import hashlib
import marshal
import os
import time
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from sgpu_decl.atomic_files import write_cache
from sgpu_decl.environments.captured.file_worker import FileStat
from sgpu_decl.environments.captured.outcome_cache import CaptureOutcome

__all__ = ["CacheEntry", "StatCache", "default_cache"]

VERSION = 2
YOUNG = 2 * 10**9  # ns

CacheEntry = tuple[FileStat, FileStat | None, str, int]


def default_cache() -> Path:
    """The folder of this user's caches of environments."""
    import platformdirs

    return Path(platformdirs.user_cache_path("sgpu")) / "environments"


class StatCache:
    """Maps how a file was read, and its path, to (facts, facts of the source of bytecode, digest,
    size). Names and versions of packages are known by the digest of their metadata. The outcome of
    the last capture is known by its fingerprint."""

    def __init__(self, folder: Path, interpreter: str, magic: bytes) -> None:
        name = hashlib.sha256(os.fsencode(interpreter) + magic).hexdigest()[:32]
        self._path = folder / f"{name}.v{VERSION}.{marshal.version}"
        self._names_path = self._path.with_name(f"{self._path.name}.names")
        self._outcome_path = self._path.with_name(f"{self._path.name}.outcome")
        self._grew = False
        self._certain = True
        self._used_names: dict[str, tuple[str, str]] = {}
        self._opened = time.time_ns()  # nothing was read before

    @cached_property
    def _files(self) -> dict[str, dict[str, CacheEntry]]:
        return _load(self._path) or {}

    @cached_property
    def _names(self) -> dict[str, tuple[str, str]]:
        return _load(self._names_path) or {}

    def outcome(self, fingerprint: bytes) -> CaptureOutcome | None:
        """What a capture came to that saw just this."""
        saved = _load(self._outcome_path)
        return CaptureOutcome.from_value(saved[1]) if saved and saved[0] == fingerprint else None

    def keep_outcome(self, fingerprint: bytes, outcome: CaptureOutcome) -> None:
        """Save it, unless it depends on what cannot be remembered."""
        if self._certain:
            _save(self._outcome_path, (fingerprint, outcome.to_value()))

    def doubt(self) -> None:
        """Say that looking again at the same files may come to something else."""
        self._certain = False

    def recall(
        self, how: str, path: str, facts: FileStat, source: FileStat | None = None
    ) -> tuple[str, int] | None:
        """Digest and size of an unchanged file; `source` has the facts of its source."""
        entry = self._files.get(how, {}).get(path)
        if entry is None or entry[0] != facts or entry[1] != source:
            return None
        return entry[2], entry[3]

    def remember(
        self,
        how: str,
        path: str,
        facts: FileStat,
        digest: str,
        size: int,
        source: FileStat | None = None,
    ) -> None:
        times = (*facts[1:3], *(source[1:3] if source else ()))
        if self._opened - max(times) > YOUNG:
            self._files.setdefault(how, {})[path] = (facts, source, digest, size)
            self._grew = True
        else:
            self.doubt()

    def keep_files(self, paths: Collection[str]) -> None:
        """Save what is known of these files, if it is more than before, and let go of it."""
        if self._grew:
            remaining = {
                how: {path: entry for path, entry in of_how.items() if path in paths}
                for how, of_how in self._files.items()
            }
            _save(self._path, remaining)
        self._files = {}

    def name(self, digest: str) -> tuple[str, str] | None:
        """Name and version of the package whose metadata has this digest."""
        package = self._names.get(digest)
        if package is not None:
            self._used_names[digest] = package
        return package

    def remember_name(self, digest: str, name: str, version: str) -> None:
        self._used_names[digest] = (name, version)

    def keep_names(self) -> None:
        """Save the names that were used."""
        if self._used_names != self._names:
            _save(self._names_path, self._used_names)


def _load(path: Path) -> Any:
    """What was saved; nothing where it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        data = memoryview(path.read_bytes())
        # Checked first: marshal must not be given what it did not write.
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return marshal.loads(data[32:])  # noqa: S302
    return None


def _save(path: Path, value: Any) -> None:
    data = marshal.dumps(value)
    write_cache(path, hashlib.sha256(data).digest() + data)
