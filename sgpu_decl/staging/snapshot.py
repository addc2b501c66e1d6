"""The code of a run by content: which files, and one digest for all of them."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.jsonable import Json, canonical, digest
from sgpu_decl.staging.hashing import HashCache
from sgpu_decl.staging.ignoring import LOOK, Ignoring, is_secret, is_sgpu_file, never_counts

__all__ = ["Entry", "Snapshot", "changed", "snapshot"]


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One file: `path` relative with `/`, SHA-256 of the content in hex, size in bytes. A symbolic
    link inside the tree has a `target` and no digest."""

    path: str
    digest: str
    size: int
    executable: bool = False
    target: str | None = None

    def to_json(self) -> list[Json]:
        return [self.path, self.digest, self.size, self.executable, self.target]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`entries` is sorted by path; `left_out` lists secrets that were found and not taken. `root`
    is where the files lie now, which is no part of the digest."""

    root: Path
    digest: str
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, root: Path, entries: Collection[Entry], left_out: Collection[str]) -> "Snapshot":
        ordered = tuple(sorted(entries))
        return cls(
            root=root,
            digest=digest(canonical([entry.to_json() for entry in ordered])),
            entries=ordered,
            left_out=tuple(sorted(left_out)),
        )


def changed(before: Snapshot | None, after: Snapshot) -> tuple[str, ...]:
    """The paths that were added, removed or altered, sorted; empty if `before` is unknown."""
    if before is None:
        return ()
    old = {entry.path: entry for entry in before.entries}
    new = {entry.path: entry for entry in after.entries}
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def snapshot(
    root: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    link: Sequence[str] = (),
    owners: Collection[Path] = (),
    cache: HashCache | None = None,
) -> tuple[Snapshot | None, tuple[Diagnostic, ...]]:
    """Look at a code tree without changing it.

    Args:
        root: the folder; absolute.
        include, exclude: git patterns that win over what ignore files say.
        link: relative paths of large local data: linked into each attempt, never read here.
        owners: sgpu's own files in the tree, which are config and not code.
        cache: remembers digests of unchanged files.

    Returns:
        The snapshot, or `None` and what is wrong.
    """
    if not root.is_dir():
        return None, (
            Diagnostic(
                code="code_root_missing",
                summary=f"the code root `{root}` is not a folder",
                hint="set `code.root` to the folder of your code",
            ),
        )
    walk = _Walk(root, include, exclude, link, owners, cache or HashCache(None))
    walk.run()
    if walk.findings:
        return None, tuple(walk.findings)
    return Snapshot.of(root, walk.entries, walk.left_out), ()


class _Walk:
    def __init__(
        self,
        root: Path,
        include: Sequence[str],
        exclude: Sequence[str],
        link: Sequence[str],
        owners: Collection[Path],
        cache: HashCache,
    ) -> None:
        self._root = os.fspath(root)
        self._real = os.path.realpath(root)
        self._include = include
        self._ignoring = Ignoring(include=include, exclude=exclude)
        self._linked = {os.path.normpath(path) for path in link}
        self._owners = {os.path.realpath(path) for path in owners}
        self._cache = cache
        self.entries: list[Entry] = []
        self.left_out: list[str] = []
        self.findings: list[Diagnostic] = []

    def run(self) -> None:
        for pattern in self._include:
            if is_secret(pattern.strip("/")):
                self.findings.append(
                    Diagnostic(
                        code="secret_included",
                        summary=f"`code.include` names `{pattern}`, which looks like a secret",
                        hint="hand secrets on through `env.secrets`, never with the code",
                    )
                )
        for path in self._files("", ignored=False):
            self._take(path)

    def _files(self, folder: str, *, ignored: bool) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            found = sorted(
                os.scandir(os.path.join(self._root, folder)), key=lambda entry: entry.name
            )
        except OSError as error:
            self._unreadable(folder, error)
            return
        names = {entry.name: entry for entry in found}
        if "pyvenv.cfg" in names and folder:
            return
        self._enter(folder, names)
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if never_counts(entry.name, folder=is_folder) or path in self._linked:
                continue
            if is_secret(path):
                self.left_out.append(path)
                continue
            if ignored:  # only what `include` names is taken from an ignored folder
                out = not self._ignoring.includes(path, folder=is_folder)
            else:
                out = self._ignoring.ignores(path, folder=is_folder)
            if is_folder:
                if not out or self._ignoring.reaches_in:
                    yield from self._files(path, ignored=out)
            elif not out:
                yield path, entry

    def _enter(self, folder: str, names: Mapping[str, os.DirEntry[str]]) -> None:
        lines: list[str] = []
        for name in (".gitignore", ".sgpuignore"):
            if name not in names:
                continue
            try:
                with open(names[name].path, encoding="utf-8", errors="replace") as file:
                    lines.extend(file.read().splitlines())
            except OSError as error:
                self._unreadable(f"{folder}/{name}".lstrip("/"), error)
        if lines:
            self._ignoring.enter(folder, lines)

    def _take(self, found: tuple[str, os.DirEntry[str]]) -> None:
        path, entry = found
        try:
            if entry.is_symlink():
                self._take_link(path, entry)
                return
            facts = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode) or self._is_ours(entry):
                return
            content = self._cache.digest(entry.path, facts)
        except OSError as error:
            self._unreadable(path, error)
            return
        executable = bool(facts.st_mode & stat.S_IXUSR)
        self.entries.append(Entry(path, content, facts.st_size, executable))

    def _take_link(self, path: str, entry: os.DirEntry[str]) -> None:
        target = os.readlink(entry.path)
        whole = os.path.realpath(entry.path)
        if whole != self._real and not whole.startswith(self._real + os.sep):
            self.findings.append(
                Diagnostic(
                    code="link_outside",
                    summary=f"`{path}` is a link to `{target}`, outside of the code root",
                    hint=f"list it under `code.link` if it is local data, or ignore it: `{path}`",
                )
            )
            return
        if os.path.isabs(target):
            target = os.path.relpath(whole, os.path.dirname(os.path.join(self._real, path)))
        self.entries.append(Entry(path, "", 0, executable=False, target=target))

    def _is_ours(self, entry: os.DirEntry[str]) -> bool:
        if self._owners and os.path.realpath(entry.path) in self._owners:
            return True
        if not entry.name.endswith((".yaml", ".yml", ".json", ".plan", ".sgpu")):
            return False
        with open(entry.path, "rb") as file:
            return is_sgpu_file(entry.name, file.read(LOOK))

    def _unreadable(self, path: str, error: OSError) -> None:
        self.findings.append(
            Diagnostic(
                code="code_unreadable",
                summary=f"`{path or self._root}` cannot be read: {error.strerror}",
                hint="mend its permissions, or leave it out with `code.exclude`",
            )
        )
