"""Reads `uv.lock`: the dependencies of a project on an interpreter. The file lists the packages of
all platforms, so the project's dependencies are followed and their markers evaluated. The project's
extras and dependency groups are left out."""

from collections.abc import Iterable, Mapping
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.package_lists.lock_file import LockedPackages, Pin, invalid, settle
from sgpu_decl.environments.package_lists.markers import applies
from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.environments.package_lists.toml import Toml, table, tables, text_of, texts
from sgpu_decl.model.environment import Package

_HERE = (".", "")
_LOCAL = ("virtual", "editable", "directory")


def read_uv_lock(
    toml: Toml, values: Mapping[str, str]
) -> tuple[LockedPackages | None, tuple[Diagnostic, ...]]:
    """Read the packages that the project needs, for these values of markers."""
    if toml.data.get("version") != 1:
        summary = f"the lock file is of version {toml.data.get('version')!r}, not of 1"
        return None, (invalid(summary, toml.top, "make it with `uv lock`"),)
    walk = _Walk(toml, values)
    walk.follow(walk.roots())
    locked, more = settle(
        "uv", walk.pins.values(), python=text_of(toml.data.get("requires-python"))
    )
    return locked, (*walk.findings, *more)


class _Walk:
    def __init__(self, toml: Toml, values: Mapping[str, str]) -> None:
        self._toml = toml
        self._values = values
        self._entries = tables(toml.data.get("package"))
        self._by_name: dict[str, list[int]] = {}
        for index, entry in enumerate(self._entries):
            name = text_of(entry.get("name"))
            if name is not None:
                self._by_name.setdefault(normalise(name), []).append(index)
        self.pins: dict[int, Pin] = {}
        self.findings: list[Diagnostic] = []

    def roots(self) -> list[dict[str, Any]]:
        """The dependencies of the project or of the locked script; without either, every
        package."""
        projects = [entry for entry in self._entries if _is_project(entry)]
        if projects:
            return [
                dependency
                for project in projects
                for dependency in tables(project.get("dependencies"))
            ]
        required = tables(table(self._toml.data.get("manifest")).get("requirements"))
        return required or [{"name": name} for name in self._by_name]

    def follow(self, dependencies: Iterable[dict[str, Any]]) -> None:
        waiting = list(dependencies)
        visited: set[tuple[int, str]] = set()
        while waiting:
            dependency = waiting.pop()
            index = self._target(dependency)
            if index is None:
                continue
            entry = self._entries[index]
            extras = texts(dependency.get("extra"))
            for part in ("", *extras):
                if (index, part) in visited:
                    continue
                visited.add((index, part))
                optional = table(entry.get("optional-dependencies"))
                waiting += tables(optional.get(part)) if part else tables(entry.get("dependencies"))
            if index not in self.pins and not _is_project(entry):
                self._pin(index, entry)

    def _target(self, dependency: dict[str, Any]) -> int | None:
        """The entry of a dependency, or `None` where it does not apply or is wrong."""
        name = text_of(dependency.get("name")) or ""
        marker = text_of(dependency.get("marker"))
        candidates = self._by_name.get(normalise(name), [])
        place = self._toml.place("package", candidates[0]) if candidates else self._toml.top
        try:
            if marker is not None and not applies(marker, self._values):
                return None
        except ValueError:
            self.findings.append(
                invalid(f"the marker of `{name}` cannot be read: `{marker}`", place)
            )
            return None
        version = dependency.get("version")
        fitting = [
            candidate
            for candidate in candidates
            if version is None or self._entries[candidate].get("version") == version
        ]
        fitting = [item for item in fitting if self._resolved_here(item)] or fitting
        if not fitting:
            self.findings.append(
                invalid(f"the lock file depends on `{name}` and has no entry for it", place)
            )
            return None
        return fitting[0]

    def _resolved_here(self, index: int) -> bool:
        """Whether an entry of a forked resolution applies."""
        markers = self._entries[index].get("resolution-markers")
        if not isinstance(markers, list):
            return True
        try:
            return any(applies(str(marker), self._values) for marker in markers)
        except ValueError:
            return True  # the dependency has the same marker, and its error is reported

    def _pin(self, index: int, entry: dict[str, Any]) -> None:
        place = self._toml.place("package", index)
        name, version = str(entry["name"]), text_of(entry.get("version"))
        source = table(entry.get("source"))
        files = [
            *tables(entry.get("wheels")),
            *([table(entry["sdist"])] if "sdist" in entry else []),
        ]
        if "registry" in source and (version is None or not files):
            self.findings.append(
                invalid(f"`{name}` has no version or no files: it was cut off", place)
            )
            return
        # the part after `#` is the commit of a repository, which pins it as a hash does
        pinned = "#" in str(source.get("git", ""))
        hashed = not any(item in source for item in _LOCAL) and bool(files)
        self.pins[index] = Pin(
            package=Package(normalise(name), version or "unversioned"),
            hashed=pinned or (hashed and all(text_of(file.get("hash")) for file in files)),
            place=place,
        )


def _is_project(entry: Mapping[str, Any]) -> bool:
    source = table(entry.get("source"))
    return any(source.get(kind) in _HERE for kind in _LOCAL if kind in source)
