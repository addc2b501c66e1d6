"""The cache of captures: digests of unchanged files, one cache for each interpreter.

A file is read again when one of its stat values differs. A file that changed less than two seconds
before it was read is not cached: its next change could carry the same time.
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

VERSION = 2
YOUNG = 2 * 10**9  # ns

CacheEntry = tuple[FileStat, FileStat | None, str, int]


def default_cache() -> Path:
    """The folder of this user's caches of environments."""
    import platformdirs

    return Path(platformdirs.user_cache_path("sgpu")) / "environments"


class StatCache:
    """Maps the form and path of a file to (facts, facts of the source of bytecode, digest, size);
    the digest of metadata to name and version of a package; and a fingerprint to the outcome of the
    last capture."""

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
        """The outcome of the last capture, if it had this fingerprint."""
        saved = _load(self._outcome_path)
        return CaptureOutcome.from_value(saved[1]) if saved and saved[0] == fingerprint else None

    def keep_outcome(self, fingerprint: bytes, outcome: CaptureOutcome) -> None:
        """Save it, unless it depends on files that are not cached."""
        if self._certain:
            _save(self._outcome_path, (fingerprint, outcome.to_value()))

    def doubt(self) -> None:
        """Do not save the outcome: the same files may give another one."""
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
        """Save the entries of these files if there are new ones, and free the memory."""
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
    """The saved value; `None` if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        data = memoryview(path.read_bytes())
        # The hash is checked first: marshal is not safe for other bytes.
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return marshal.loads(data[32:])  # noqa: S302
    return None


def _save(path: Path, value: Any) -> None:
    data = marshal.dumps(value)
    write_cache(path, hashlib.sha256(data).digest() + data)
