"""Reads `pylock.toml` (PEP 751): the packages that apply to an interpreter.

https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.lock_file import LockedPackages, Pin, invalid, settle
from sgpu_decl.environments.package_lists.markers import applies
from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.environments.package_lists.toml import Toml, table, tables, text_of, texts
from sgpu_decl.model.environment import Package

_FILES = ("archive", "sdist")


def read_pylock(
    toml: Toml, values: Mapping[str, str]
) -> tuple[LockedPackages | None, tuple[Diagnostic, ...]]:
    """Read the packages whose markers hold for `values`, in the groups that are on by default."""
    version = text_of(toml.data.get("lock-version"))
    if version is None or version.partition(".")[0] != "1":
        summary = f"the lock file is of version {toml.data.get('lock-version')!r}, not of 1.x"
        return None, (invalid(summary, toml.top, "make it with a tool that writes version 1.0"),)
    packages = toml.data.get("packages")
    if not isinstance(packages, list) or not text_of(toml.data.get("created-by")):
        missing_field = "created-by" if isinstance(packages, list) else "packages"
        return None, (invalid(f"the lock file has no `{missing_field}`: it was cut off", toml.top),)
    groups = texts(toml.data.get("default-groups"))
    misfits = list(_other_environments(toml, values))
    pins: list[Pin] = []
    findings: list[Diagnostic] = []
    for index, raw in enumerate(packages):
        pin = _entry(table(raw), toml.place("packages", index), values, groups)
        if isinstance(pin, Pin):
            pins.append(pin)
            requires = text_of(table(raw).get("requires-python"))
            misfits += _other_python(pin.package, requires, values["python_full_version"])
        elif pin is not None:
            findings.append(pin)
    locked, more = settle("pylock", pins, python=text_of(toml.data.get("requires-python")))
    return replace(locked, misfit=next(iter(misfits), None)), (*findings, *more)


def _other_environments(toml: Toml, values: Mapping[str, str]) -> Iterator[str]:
    """The reason why the whole file is not for an interpreter."""
    markers = texts(toml.data.get("environments"))
    with suppress(ValueError):
        if markers and not any(applies(item, values) for item in markers):
            yield f"is for other environments: `{'`, `'.join(markers)}`"


def _other_python(package: Package, requires: str | None, version: str) -> Iterator[str]:
    """The reason why a package that applies is not for a Python."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    with suppress(InvalidSpecifier):
        if requires and not SpecifierSet(requires).contains(version, prereleases=True):
            what = f"{package.name} {package.version}"
            yield f"has {what}, which is for Python {requires}, and the run uses {version}"


def _entry(
    entry: Mapping[str, Any], place: Place, values: Mapping[str, str], groups: Collection[str]
) -> Pin | Diagnostic | None:
    """The pin of an entry, `None` where it does not apply, or the error."""
    name, marker = text_of(entry.get("name")), text_of(entry.get("marker"))
    if name is None:
        return invalid("a package has no `name`", place)
    try:
        if marker is not None and not applies(marker, values, groups=groups):
            return None
    except ValueError:
        return invalid(f"the marker of `{name}` cannot be read: `{marker}`", place)
    files = tables(entry.get("wheels"))
    files += [table(entry[item]) for item in _FILES if item in entry]
    commit = text_of(table(entry.get("vcs")).get("commit-id"))
    if not files and commit is None and "directory" not in entry:
        return invalid(f"`{name}` names neither files nor a source: it was cut off", place)
    # a package from a folder or a repository may have no version of its own
    version = text_of(entry.get("version")) or commit or "unversioned"
    hashed = bool(files) and all(table(file.get("hashes")) for file in files)
    return Pin(
        package=Package(normalise(name), version), hashed=hashed or commit is not None, place=place
    )
