"""Reads the lock of one interpreter from the tables of a `pylock.toml`.

`packaging.pylock` (26.3) refuses an empty table of hashes, and uv 0.8, the oldest that is used
here, writes one for a wheel of a local index (measured; uv 0.13.9 writes the hash)."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sgpu_decl.code.file_digests import digest_file
from sgpu_decl.content.manifest import Python
from sgpu_decl.environments.declared.lock import Artifact, Lock, LockEntry, SourceRepository
from sgpu_decl.environments.package_lists.markers import applies, marker_values
from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.environments.package_lists.toml import table, tables, text_of, texts

_MACOS = "macosx"


class UnusableLock(ValueError):
    """A package of the lock cannot be part of an environment."""

    def __init__(self, code: str, name: str, summary: str, hint: str) -> None:
        super().__init__(summary)
        self.code, self.name, self.summary, self.hint = code, name, summary, hint


def lock_of(
    data: Mapping[str, Any],
    python: Python,
    *,
    source: Path,
    folder: Path,
    trusted: Mapping[str, Collection[str]] | None = None,
) -> Lock:
    """Read the packages that apply to an interpreter.

    Args:
        data: a valid lock file (see `pylock.read_pylock`).
        source: the base of relative paths in it.
        folder: the base of relative paths in the result.
        trusted: for each package, the hashes that its files may have; `None` for any.

    Raises:
        UnusableLock: a package has no hash, no file with a trusted hash, or lies in a folder.
        OSError: a local wheel cannot be read.
    """
    values = marker_values(python)
    groups = texts(data.get("default-groups"))
    entries: dict[str, LockEntry] = {}
    for raw in data.get("packages", ()):
        marker = text_of(raw.get("marker"))
        if marker is not None and not applies(marker, values, groups=groups):
            continue
        entry = _entry(raw, python, source, folder)
        if trusted is not None:
            entry = _only_trusted(entry, trusted.get(entry.name, ()))
        entries[entry.name] = entry
    return Lock(python=python, entries=tuple(entries[name] for name in sorted(entries)))


def _entry(raw: Mapping[str, Any], python: Python, source: Path, folder: Path) -> LockEntry:
    name = normalise(str(raw["name"]))
    version = text_of(raw.get("version"))
    if "directory" in raw:
        where = _relative(source / str(table(raw["directory"]).get("path")), folder)
        raise UnusableLock(
            "requirement_local",
            name,
            f"`{name}` is a source folder, `{where}`: its content has no hash",
            "build a wheel of it and name that, or take it into `code.root`: code travels with "
            "each run",
        )
    if "vcs" in raw:
        vcs = table(raw["vcs"])
        repository = SourceRepository(
            str(vcs.get("type", "git")),
            str(vcs.get("url", "")),
            str(vcs.get("commit-id", "")),
            text_of(vcs.get("subdirectory")),
        )
        return LockEntry(name, version or repository.commit, (), repository)
    files = tuple(_files(raw, source, folder))
    usable = tuple(file for file in files if file.kind != "wheel" or _may_fit(file, python))
    files = usable or files  # where none fits, uv explains it best
    if not files or not all(file.hashes for file in files):
        raise UnusableLock(
            "lock_without_hashes",
            name,
            f"`{name}` has no hash: another file could be installed",
            "make the lock again from an index that has hashes",
        )
    return LockEntry(name, version or "unversioned", files)


def _files(raw: Mapping[str, Any], source: Path, folder: Path) -> Iterator[Artifact]:
    listed = [("wheel", wheel) for wheel in tables(raw.get("wheels"))]
    listed += [(kind, table(raw[kind])) for kind in ("sdist", "archive") if kind in raw]
    for kind, item in listed:
        url, path, size = text_of(item.get("url")), text_of(item.get("path")), item.get("size")
        where = url if path is None else _relative(source / path, folder)
        hashes = sorted(f"{name}:{value}" for name, value in table(item.get("hashes")).items())
        if not hashes and url is not None and url.startswith("file://"):
            hashes = [f"sha256:{digest_file(unquote(urlsplit(url).path))}"]  # uv may leave it out
        yield Artifact(kind, where or "", size if isinstance(size, int) else None, tuple(hashes))


def _relative(path: Path, folder: Path) -> str:
    whole = os.path.join(os.path.realpath(path.parent), path.name)
    home = os.path.realpath(folder)
    return os.path.relpath(whole, home) if whole.startswith(home + os.sep) else whole


def _only_trusted(entry: LockEntry, hashes: Collection[str]) -> LockEntry:
    files = tuple(file for file in entry.files if any(item in hashes for item in file.hashes))
    if not files:
        raise UnusableLock(
            "hash_mismatch",
            entry.name,
            f"no file of `{entry.name}` {entry.version} that fits this Python has one of the "
            "hashes that are given",
            "check where it is installed from; if the hashes are old, make the file again",
        )
    return entry._replace(files=files)


def _may_fit(file: Artifact, python: Python) -> bool:
    """Whether a wheel is for this interpreter and machine, by its name."""
    from packaging.tags import compatible_tags, cpython_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    name = file.location.partition("#")[0].rpartition("/")[2].replace("%2B", "+")
    try:
        tags = parse_wheel_filename(name)[3]
    except InvalidWheelFilename:
        return True
    major, minor = (int(item) for item in python.version.split(".")[:2])
    if python.implementation != "cpython":
        return True
    threaded = python.abi.startswith(f"cpython-{major}{minor}t")
    abi = f"cp{major}{minor}{'t' if threaded else ''}"
    supported = {
        (tag.interpreter, tag.abi)
        for tags_of in (
            cpython_tags((major, minor), [abi], ["x"]),
            compatible_tags((major, minor), abi.removesuffix("t"), ["x"]),
        )
        for tag in tags_of
    }
    return any(
        (tag.interpreter, tag.abi) in supported and _runs_on(tag.platform, python.platform)
        for tag in tags
    )


def _runs_on(platform: str, here: str) -> bool:
    """`manylinux_2_17_x86_64` on `linux-x86_64`; `macosx_11_0_universal2` on a Mac."""
    if platform == "any":
        return True
    system, _, machine = here.partition("-")
    if system == "linux":
        return "linux" in platform and platform.endswith(f"_{machine}")
    return platform.startswith(_MACOS) and platform.endswith((f"_{machine}", "universal2"))
