"""What was seen of an environment's files, kept between looks, in a file for each interpreter.

A file is read again when anything that the file system says of it differs. One that changed within
two seconds before it was read is never remembered: its next change could carry the same time.
"""

import contextlib
import hashlib
import marshal
import os
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sgpu_decl.environments.captured.worker import Facts

__all__ = ["Known", "Memory", "default_cache"]

VERSION = 2
YOUNG = 2 * 10**9  # ns

Known = tuple[Facts, Facts | None, str, int]


def default_cache() -> Path:
    """The folder of this user's caches of environments."""
    import platformdirs

    return Path(platformdirs.user_cache_path("sgpu")) / "environments"


class Memory:
    """Maps how a file was read, and its path, to (facts, facts of the source of bytecode, digest,
    size). Names and versions of packages are known by the digest of their metadata. `sound` is the
    digest of the manifest whose paths were checked last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, dict[str, Known]] = {}
        self._grew = False
        self._names: dict[str, tuple[str, str]] = {}
        self._learnt: dict[str, tuple[str, str]] = {}
        self.sound = ""
        self._opened = time.time_ns()  # nothing was read before

    @classmethod
    def open(cls, folder: Path, interpreter: str, magic: bytes) -> "Memory":
        """Read what is kept of an interpreter; what is missing or damaged is empty."""
        name = hashlib.sha256(os.fsencode(interpreter) + magic).hexdigest()[:32]
        memory = cls(folder / f"{name}.v{VERSION}.{marshal.version}")
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
            memory._files = _load(memory._path)
            memory._names, memory.sound = _load(memory._notes)
        return memory

    @property
    def _notes(self) -> Path:
        return self._path.with_name(f"{self._path.name}.notes")

    def recall(
        self, how: str, path: str, facts: Facts, about: Facts | None = None
    ) -> tuple[str, int] | None:
        """Digest and size of a file that is as it was; `about` are the facts of its source."""
        found = self._files.get(how, {}).get(path)
        if found is None or found[0] != facts or found[1] != about:
            return None
        return found[2], found[3]

    def remember(
        self, how: str, path: str, facts: Facts, digest: str, size: int, about: Facts | None = None
    ) -> None:
        times = (*facts[1:3], *(about[1:3] if about else ()))
        if self._opened - max(times) > YOUNG:
            self._files.setdefault(how, {})[path] = (facts, about, digest, size)
            self._grew = True

    def keep(self, paths: Collection[str]) -> None:
        """Save what is known of these files, if it is more than before, and let go of it."""
        if self._grew:
            kept = {
                how: {path: known for path, known in of_how.items() if path in paths}
                for how, of_how in self._files.items()
            }
            _save(self._path, kept)
        self._files = {}

    def name(self, digest: str) -> tuple[str, str] | None:
        """Name and version of the package whose metadata has this digest."""
        found = self._names.get(digest)
        if found is not None:
            self._learnt[digest] = found
        return found

    def remember_name(self, digest: str, name: str, version: str) -> None:
        self._learnt[digest] = (name, version)

    def keep_notes(self, sound: str) -> None:
        """Save the names that were used, and which manifest is sound."""
        if sound != self.sound or self._learnt != self._names:
            _save(self._notes, (self._learnt, sound))


def _load(path: Path) -> Any:
    data = path.read_bytes()
    # Checked first: marshal must not be given what it did not write.
    if hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        raise ValueError
    return marshal.loads(memoryview(data)[32:])  # noqa: S302


def _save(path: Path, value: Any) -> None:
    """A folder that cannot be written costs speed only."""
    data = marshal.dumps(value)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with open(handle, "wb") as file:
            file.write(hashlib.sha256(data).digest())
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
