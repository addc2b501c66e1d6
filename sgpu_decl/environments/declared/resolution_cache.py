"""The cache of resolutions, by their inputs."""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.model.jsonable import Json, canonical, digest

_KEPT = 500


class UvWarning(NamedTuple):
    """A warning of uv, and the packages that it names."""

    code: str
    summary: str
    names: tuple[str, ...]


class Resolution(NamedTuple):
    lock: Lock
    warnings: tuple[UvWarning, ...] = ()


class ResolutionCache:
    """A folder of files that are written whole; several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, inputs: Json) -> Resolution | None:
        """The resolution of these inputs, or `None` if there is none or its file is damaged."""
        path = self._path(inputs)
        try:
            raw = json.loads(path.read_bytes())
            lock = Lock.from_json(raw["lock"])
            warnings = tuple(
                UvWarning(code, text, tuple(names)) for code, text, names in raw["warned"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        with contextlib.suppress(OSError):  # the least recently used are deleted first
            os.utime(path)
        return Resolution(lock, warnings)

    def remember(self, inputs: Json, resolution: Resolution) -> None:
        """Save a resolution.

        Raises:
            OSError: it cannot be written.
        """
        warnings = [[item.code, item.summary, list(item.names)] for item in resolution.warnings]
        text = canonical({"lock": resolution.lock.to_json(), "warned": warnings})
        private_folder(self._folder)
        write_atomic(self._path(inputs), text.encode())
        self._forget(self._folder.glob("*.json"))

    def _forget(self, paths: Iterable[Path]) -> None:
        by_age: list[tuple[float, Path]] = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                by_age.append((path.stat().st_mtime, path))
        for _, path in sorted(by_age)[:-_KEPT]:
            path.unlink(missing_ok=True)

    def _path(self, inputs: Json) -> Path:
        return self._folder / f"{digest(canonical(inputs)).removeprefix('sha256:')}.json"
