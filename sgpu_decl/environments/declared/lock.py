"""A resolved environment for one interpreter: its files, by hash.

All declarations become this one form, a `pylock.toml` (PEP 751) with only the packages that apply
to the interpreter. https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sgpu_decl.content.manifest import Python
from sgpu_decl.environments.declared.uv import without_credentials
from sgpu_decl.model.environment import Package
from sgpu_decl.model.jsonable import Json, canonical

FORMAT = 1
KINDS = ("wheel", "sdist", "archive")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Artifact(NamedTuple):
    """A file to install from: a `wheel`, an `sdist`, or an `archive` that was named directly.
    `location` is a URL, or a path, relative to the project where it lies below it; `hashes` are
    `sha256:<hex>`, sorted."""

    kind: str
    location: str
    size: int | None
    hashes: tuple[str, ...]


class SourceRepository(NamedTuple):
    """A commit to install from."""

    kind: str
    url: str
    commit: str
    subdirectory: str | None


class LockEntry(NamedTuple):
    """One package: its files, or its repository."""

    name: str
    version: str
    files: tuple[Artifact, ...]
    repository: SourceRepository | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """`entries` are sorted by name; `indexes` are URLs of indexes with a `${VARIABLE}`, which are
    no part of the digest."""

    python: Python
    entries: tuple[LockEntry, ...]
    indexes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the packages and their hashes, without locations, and of the
        interpreter: implementation, minor version, ABI and platform."""
        python = self.python
        whole: Json = [
            FORMAT,
            [python.implementation, python.minor, python.abi, python.platform],
            [_identity(entry) for entry in self.entries],
        ]
        return "sha256:" + hashlib.sha256(canonical(whole).encode()).hexdigest()

    @property
    def packages(self) -> tuple[Package, ...]:
        return tuple(Package(entry.name, entry.version) for entry in self.entries)

    @property
    def hashed(self) -> bool:
        """Whether every package has a hash; a repository has a commit instead."""
        return all(entry.repository is None for entry in self.entries)

    def to_json(self) -> Json:
        """The JSON in a plan, from which another machine builds the same environment."""
        return {
            "v": FORMAT,
            "python": list(self.python),
            "indexes": list(self.indexes),
            "packages": [
                [
                    entry.name,
                    entry.version,
                    [[*file[:3], list(file.hashes)] for file in entry.files],
                    list(entry.repository) if entry.repository else None,
                ]
                for entry in self.entries
            ],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Lock":
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            if raw["v"] != FORMAT:
                raise ValueError(f"a lock of another format: {raw['v']!r}")
            entries = tuple(
                LockEntry(
                    str(name),
                    str(version),
                    tuple(_artifact(*file) for file in files),
                    SourceRepository(*repository) if repository else None,
                )
                for name, version, files, repository in raw["packages"]
            )
            python = Python(*map(str, raw["python"]))
            return cls(python=python, entries=entries, indexes=tuple(map(str, raw["indexes"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a lock: {error}") from None

    def to_toml(self, folder: Path) -> str:
        """The text of a `pylock.toml`; relative paths start from `folder`."""
        lines = ['lock-version = "1.0"', 'created-by = "sgpu"', ""]
        for entry in self.entries:
            lines += ["[[packages]]", f"name = {_quoted(entry.name)}"]
            if entry.repository is None or not entry.version.startswith(entry.repository.commit):
                lines.append(f"version = {_quoted(entry.version)}")
            if entry.repository is not None:
                kind, url, commit, below = entry.repository
                fields = {"type": kind, "url": url, "commit-id": commit, "subdirectory": below}
                lines.append(f"vcs = {_table(fields)}")
            wheels = [_file(file, folder) for file in entry.files if file.kind == "wheel"]
            lines += [
                f"{item.kind} = {_file(item, folder)}"
                for item in entry.files
                if item.kind != "wheel"
            ]
            if wheels:
                lines.append(f"wheels = [{', '.join(wheels)}]")
            lines.append("")
        return "\n".join(lines)


def _artifact(kind: str, location: str, size: int | None, hashes: list[str]) -> Artifact:
    if kind not in KINDS or not all(":" in item for item in hashes):
        raise ValueError(f"not a file of a package: {kind}, {location}")
    return Artifact(kind, str(location), size, tuple(hashes))


def _identity(entry: LockEntry) -> Json:
    kind, *where = entry.repository or ("",)
    return [
        entry.name,
        entry.version,
        sorted({digest for file in entry.files for digest in file.hashes}),
        [kind, *[without_credentials(item) if item else None for item in where]],
    ]


def _file(file: Artifact, folder: Path) -> str:
    remote = "://" in file.location
    where = file.location if remote else os.path.join(folder, file.location)
    hashes = dict(item.split(":", 1) for item in file.hashes)
    fields = {"url" if remote else "path": where, "size": file.size, "hashes": hashes}
    return _table(fields)


def _table(fields: Mapping[str, Any]) -> str:
    pairs = (
        f"{_key(name)} = {_table(value) if isinstance(value, dict) else _quoted(value)}"
        for name, value in fields.items()
        if value is not None
    )
    return "{ " + ", ".join(pairs) + " }"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(value: Json) -> str:
    """A text or number in TOML; texts are written as in JSON, which TOML accepts."""
    return canonical(value).replace("\x7f", "\\u007f")
