"""The code of a run by content: which files, and one digest for all of them."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.model.jsonable import Json, canonical, digest
from sgpu_decl.staging.hashing import HashCache
from sgpu_decl.staging.ignoring import (
    LOOK,
    Ignoring,
    bad_pattern,
    is_secret,
    is_sgpu_file,
    may_be_sgpu_file,
    never_counts,
)

__all__ = [
    "RULES",
    "Entry",
    "Snapshot",
    "changed",
    "lines_of",
    "own_outputs",
    "rules_above",
    "snapshot",
]

# A root such as a home folder is a mistake that would take hours to read.
MOST_FILES = 200_000
LARGE = 1 << 30  # bytes
RULES = (".gitignore", ".sgpuignore")


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
    outputs: Collection[tuple[int, int]] = (),
    cache: HashCache | None = None,
) -> tuple[Snapshot | None, tuple[Diagnostic, ...]]:
    """Look at a code tree without changing it.

    Args:
        root: the folder; absolute.
        include, exclude: git patterns that win over what ignore files say.
        link: relative paths of large local data: linked into each attempt, never read here.
        owners: sgpu's own files in the tree, which are config and not code.
        outputs: device and inode of files that this very command writes to.
        cache: remembers digests of unchanged files.

    Returns:
        The snapshot, or `None` where something is wrong, and what there is to say.
    """
    if not os.path.isdir(root):
        return None, (
            Diagnostic(
                code="code_root_missing",
                summary=f"the code root `{root}` is not a folder",
                hint="set `code.root` to the folder of your code",
            ),
        )
    walk = _Walk(root, include, exclude, link, owners, outputs, cache or HashCache(None))
    walk.run()
    if has_errors(walk.findings):
        return None, tuple(walk.findings)
    taken = Snapshot.of(root, walk.entries, walk.left_out)
    return taken, (*walk.findings, *_dangling(taken), *_large(taken))


def own_outputs() -> frozenset[tuple[int, int]]:
    """Device and inode of what this process writes its output to, where that is a file."""
    found = set()
    for descriptor in (1, 2):
        try:
            facts = os.fstat(descriptor)
        except OSError:
            continue  # closed
        if stat.S_ISREG(facts.st_mode):
            found.add((facts.st_dev, facts.st_ino))
    return frozenset(found)


def _dangling(taken: Snapshot) -> tuple[Diagnostic, ...]:
    """Links to what is in the tree but not in the snapshot: a copy of it cannot follow them."""
    links = [(entry, entry.target) for entry in taken.entries if entry.target is not None]
    if not links:
        return ()
    there = {entry.path for entry in taken.entries}
    for path in tuple(there):
        while path := path.rpartition("/")[0]:
            there.add(path)
    found = []
    for entry, target in links:
        leads_to = os.path.normpath(os.path.join(os.path.dirname(entry.path), target))
        if leads_to in there or leads_to == "." or not os.path.exists(taken.root / leads_to):
            continue
        found.append(
            Diagnostic(
                code="link_dangling",
                severity=Severity.WARNING,
                summary=f"`{entry.path}` is a link to `{leads_to}`, which is left out of the code",
                hint=f"name `{leads_to}` in `code.link` (local data) or in `code.include`",
            )
        )
    return tuple(found)


def _large(taken: Snapshot) -> tuple[Diagnostic, ...]:
    size = sum(entry.size for entry in taken.entries)
    if size <= LARGE:
        return ()
    largest = sorted(taken.entries, key=lambda entry: entry.size, reverse=True)[:3]
    names = ", ".join(f"`{entry.path}` ({entry.size / LARGE:.1f} GiB)" for entry in largest)
    return (
        Diagnostic(
            code="code_large",
            severity=Severity.WARNING,
            summary=f"the code holds {size / LARGE:.1f} GiB: each attempt gets a copy of it",
            hint=f"name large data in `code.link`, or leave it out: {names}",
        ),
    )


class _Walk:
    def __init__(
        self,
        root: Path,
        include: Sequence[str],
        exclude: Sequence[str],
        link: Sequence[str],
        owners: Collection[Path],
        outputs: Collection[tuple[int, int]],
        cache: HashCache,
    ) -> None:
        self._root = os.fspath(root)
        self._real = os.path.realpath(root)
        self._patterns = {"code.include": include, "code.exclude": exclude}
        self._include = include
        self._link = link
        self._ignoring = Ignoring(include=include, exclude=exclude, above=rules_above(root))
        self._linked = {os.path.normpath(path) for path in link}
        self._owners = {os.path.realpath(path) for path in owners}
        self._outputs = outputs
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
        for field, patterns in self._patterns.items():
            for pattern in patterns:
                if problem := bad_pattern(pattern):
                    self.findings.append(
                        Diagnostic(
                            code="pattern_invalid",
                            summary=f"`{pattern}` in `{field}` is no git pattern: {problem}",
                            hint="write it as in a `.gitignore`, such as `data/*.csv`",
                        )
                    )
        for path in self._link:
            self._check_link(path)
        if self.findings:
            return
        # All names before any content: a wrong root is refused before it is read.
        files = list(islice(self._files("", ignored=False), MOST_FILES + 1))
        if len(files) > MOST_FILES:
            self.findings.append(
                Diagnostic(
                    code="code_too_many_files",
                    summary=f"`{self._root}` holds more than {MOST_FILES:,} files of code",
                    hint="set `code.root` to the folder of your code, or name data in "
                    "`code.link` or `code.exclude`",
                )
            )
            return
        for file in files:
            self._take(file)

    def _check_link(self, path: str) -> None:
        if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] in {"..", "."}:
            summary = f"`{path}` in `code.link` is no path inside of the code root"
            hint = "write it relative to the root; to link elsewhere, make it a symbolic link there"
        elif not os.path.exists(os.path.join(self._root, path)):
            summary = f"`{path}` in `code.link` does not exist in `{self._root}`"
            hint = "correct the path, or remove it"
        else:
            return
        self.findings.append(Diagnostic(code="code_link_invalid", summary=summary, hint=hint))

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
                if not out or self._ignoring.reaches_into(path):
                    yield from self._files(path, ignored=out)
            elif not out:
                yield path, entry

    def _enter(self, folder: str, names: Mapping[str, os.DirEntry[str]]) -> None:
        for name in RULES:
            if name in names:
                try:
                    self._ignoring.enter(folder, lines_of(names[name].path))
                except OSError as error:
                    self._unreadable(f"{folder}/{name}".lstrip("/"), error)

    def _take(self, found: tuple[str, os.DirEntry[str]]) -> None:
        path, entry = found
        try:
            if self._owners and os.path.realpath(entry.path) in self._owners:
                return
            if entry.is_symlink():
                self._take_link(path, entry)
                return
            facts = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode) or _is_ours(entry):
                return
            if (facts.st_dev, facts.st_ino) in self._outputs:
                self._say_output(path)
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

    def _say_output(self, path: str) -> None:
        self.findings.append(
            Diagnostic(
                code="own_output",
                severity=Severity.WARNING,
                summary=f"`{path}` is written by this command and is not part of the code; "
                "the next plan would take it for code",
                hint=f"name it `*.log`, list `{path}` in `.sgpuignore`, or write it elsewhere",
            )
        )

    def _unreadable(self, path: str, error: OSError) -> None:
        self.findings.append(
            Diagnostic(
                code="code_unreadable",
                summary=f"`{path or self._root}` cannot be read: {error.strerror}",
                hint="mend its permissions, or leave it out with `code.exclude`",
            )
        )


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """A run file, a project file or a saved plan of sgpu that is not the one in use."""
    if not may_be_sgpu_file(entry.name):
        return False
    with open(entry.path, "rb") as file:
        return is_sgpu_file(entry.name, file.read(LOOK))


def rules_above(root: Path) -> list[tuple[str, list[str]]]:
    """The ignore rules of the folders above the root up to the top of its git repository, outermost
    first. Outside of a repository there are none: whose would they be?"""
    real = Path(os.path.realpath(root))
    if os.path.exists(real / ".git"):  # false, not an error, where it cannot be looked at
        return []
    found: list[tuple[str, list[str]]] = []
    for folder in real.parents:
        for name in reversed(RULES):
            try:
                found.append((real.relative_to(folder).as_posix(), lines_of(folder / name)))
            except OSError:  # not there, or not ours to read
                continue
        if os.path.exists(folder / ".git"):
            return found[::-1]
    return []


def lines_of(path: str | Path) -> list[str]:
    """The lines of an ignore file."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read().splitlines()
