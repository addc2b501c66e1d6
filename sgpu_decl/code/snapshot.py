"""The code of a run by content: its files, and one digest for all."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from sgpu_decl.code.file_digests import HashCache
from sgpu_decl.code.git_patterns import bad_pattern
from sgpu_decl.code.secret_files import is_secret
from sgpu_decl.code.selection import Exclusion, Selection, SelectionRule
from sgpu_decl.content.code_tree import code_digest
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.regular_files import NotRegular, special_kind

# A root such as a home folder is a mistake that would take hours to read.
MOST_FILES = 200_000
LARGE = 1_000_000_000  # bytes
MANY = 10_000  # files; a copy of so many takes seconds


@dataclass(frozen=True, slots=True, order=True)
class SnapshotEntry:
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
    """`entries` is sorted by path; `exclusions` lists the paths that are not code, whole folders as
    one. `root` is where the files lie now. The digest covers the entries only. `taken_anew` are the
    files, and folders of files, that older versions left out. `git_lacks`: git could not be asked
    which files it tracks, so some of them may be left out."""

    root: Path
    digest: str
    entries: tuple[SnapshotEntry, ...]
    exclusions: tuple[Exclusion, ...] = ()
    taken_anew: frozenset[str] = frozenset()
    git_lacks: bool = False

    @classmethod
    def of(
        cls,
        root: Path,
        entries: Collection[SnapshotEntry],
        exclusions: Collection[Exclusion],
        taken_anew: Collection[str] = (),
        *,
        git_lacks: bool = False,
    ) -> "Snapshot":
        ordered = tuple(sorted(entries, key=lambda entry: entry.path))
        return cls(
            root=root,
            digest=f"sha256:{code_digest(entry.to_json() for entry in ordered)}",
            entries=ordered,
            exclusions=tuple(sorted(exclusions, key=lambda item: item.path)),
            taken_anew=frozenset(taken_anew),
            git_lacks=git_lacks,
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """The files with secrets that were left out."""
        return tuple(
            item.path.rstrip("/") for item in self.exclusions if item.rule is SelectionRule.SECRET
        )

    def takes(self, path: str) -> bool:
        """Whether a relative path is part of the code, or a folder that holds some of it."""
        below = f"{path}/"
        return any(entry.path == path or entry.path.startswith(below) for entry in self.entries)

    def exclusion(self, path: str) -> Exclusion | None:
        """The exclusion of a relative path, or of a folder above it."""
        exclusions = [
            item
            for item in self.exclusions
            if item.path in (path, f"{path}/") or _is_below(path, item)
        ]
        return max(exclusions, key=lambda item: len(item.path), default=None)

    def first_below(self, folder: str) -> Exclusion | None:
        """The first exclusion of what lies in a folder."""
        start = f"{folder}/"
        return next((item for item in self.exclusions if item.path.startswith(start)), None)


def _is_below(path: str, folder: Exclusion) -> bool:
    return folder.path.endswith("/") and path.startswith(folder.path)


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
    progress: Progress | None = None,
) -> tuple[Snapshot | None, tuple[Diagnostic, ...]]:
    """Read a code tree without changing it.

    Args:
        root: the folder; absolute.
        include, exclude: git patterns that win over ignore files.
        link: relative paths of large local data, which each attempt links to and nobody reads here.
        owners: sgpu's own files in the tree, which are config and not code.
        outputs: device and inode of files that this command writes to.
        cache: the digests of unchanged files.
        progress: told `hashing`, in files, and `listing`, in seconds, while git does not answer.

    Returns:
        The snapshot, or `None` where something is wrong, and the findings.

    Raises:
        SgpuError: git does not answer (`git_silent`), or refuses to (`git_refused`).
    """
    if not os.path.isdir(root):
        return None, (
            Diagnostic(
                code="code_root_missing",
                summary=f"the code root `{root}` is not a folder",
                hint="set `code.root` to the folder of your code",
            ),
        )
    selection = Selection(
        root,
        include=include,
        exclude=exclude,
        link=link,
        owners=owners,
        outputs=outputs,
        progress=progress,
    )
    walk = _Walk(root, selection, cache or HashCache(None), progress or Quiet())
    walk.run()
    if has_errors(walk.findings):
        return None, tuple(walk.findings)
    lacking = selection.git_lacking
    code = Snapshot.of(
        root, walk.entries, walk.exclusions, selection.taken_anew, git_lacks=bool(lacking)
    )
    warnings = (
        *_dangling(code),
        *_large(code),
        *_not_included(code, include),
        *(_without_git(code, folder, why) for folder, why in lacking.items()),
    )
    return code, (*walk.findings, *warnings)


def own_outputs() -> frozenset[tuple[int, int]]:
    """Device and inode of the files that this process writes its output to."""
    files = set()
    for descriptor in (1, 2):
        try:
            facts = os.fstat(descriptor)
        except OSError:
            continue  # closed
        if stat.S_ISREG(facts.st_mode):
            files.add((facts.st_dev, facts.st_ino))
    return frozenset(files)


def _dangling(code: Snapshot) -> tuple[Diagnostic, ...]:
    """Warnings for links to paths in the tree that are not in the snapshot, so not in copies."""
    links = [(entry, entry.target) for entry in code.entries if entry.target is not None]
    if not links:
        return ()
    paths = {entry.path for entry in code.entries}
    for path in tuple(paths):
        while path := path.rpartition("/")[0]:
            paths.add(path)
    findings = []
    for entry, target in links:
        leads_to = os.path.normpath(os.path.join(os.path.dirname(entry.path), target))
        if leads_to in paths or leads_to == "." or not os.path.exists(code.root / leads_to):
            continue
        findings.append(
            Diagnostic(
                code="link_dangling",
                severity=Severity.WARNING,
                summary=f"`{entry.path}` is a link to `{leads_to}`, which is left out of the code",
                hint=f"name `{leads_to}` in `code.link` (local data) or in `code.include`",
            )
        )
    return tuple(findings)


def _not_included(code: Snapshot, include: Sequence[str]) -> tuple[Diagnostic, ...]:
    """Warnings for paths in `code.include` that are not part of the code."""
    findings = []
    for pattern in include:
        path = pattern.strip("/")
        if set(pattern) & set("*?[!\\") or code.takes(path):
            continue
        anywhere = "/" not in pattern.rstrip("/")
        if anywhere and any(path in entry.path.split("/") for entry in code.entries):
            continue
        exclusion = code.exclusion(path)
        why = f"is left out: {exclusion}" if exclusion else "matches no file"
        findings.append(
            Diagnostic(
                code="include_unused",
                severity=Severity.WARNING,
                summary=f"`{pattern}` in `code.include` {why}",
                hint="put it into `code.link` if ranks on this machine need it"
                if exclusion
                else "correct the path, or remove it",
            )
        )
    return tuple(findings)


def _without_git(code: Snapshot, folder: str, why: str) -> Diagnostic:
    start = f"{folder}/" if folder else ""
    ignored = [
        item.path
        for item in code.exclusions
        if item.rule is SelectionRule.GITIGNORE and item.path.startswith(start)
    ]
    shown = ", ".join(f"`{path}`" for path in ignored[:3])
    more = f" and {len(ignored) - 3} more" if len(ignored) > 3 else ""
    return Diagnostic(
        code="git_refused",
        severity=Severity.WARNING,
        summary=f"git cannot be asked which files of `{code.root / folder}` it tracks: {why}",
        hint=f"until it can, the ignore files decide alone, and leave out {shown}{more}; name in "
        "`code.include` what is needed"
        if ignored
        else "until it can, the ignore files of the code decide alone",
    )


def _large(code: Snapshot) -> tuple[Diagnostic, ...]:
    total = sum(entry.size for entry in code.entries)
    if total <= LARGE and len(code.entries) > MANY:
        return (_many(code),)
    if total <= LARGE:
        return ()
    largest = sorted(code.entries, key=lambda entry: entry.size, reverse=True)[:3]
    names = ", ".join(f"`{entry.path}` ({size(entry.size)})" for entry in largest)
    return (
        Diagnostic(
            code="code_large",
            severity=Severity.WARNING,
            summary=f"the code holds {size(total)}: each attempt gets a copy of it",
            hint=f"name large data in `code.link`, or leave it out: {names}",
        ),
    )


def _many(code: Snapshot) -> Diagnostic:
    folders = Counter(entry.path.rpartition("/")[0].partition("/")[0] for entry in code.entries)
    del folders[""]
    names = ", ".join(f"`{name}/` ({count:,})" for name, count in folders.most_common(3))
    return Diagnostic(
        code="code_large",
        severity=Severity.WARNING,
        summary=f"the code holds {len(code.entries):,} files: each attempt gets a copy of them",
        hint=f"name data in `code.link`, or leave it out{f': {names}' if names else ''}",
    )


class _Walk:
    def __init__(
        self, root: Path, selection: Selection, cache: HashCache, progress: Progress
    ) -> None:
        self._root = os.fspath(root)
        self._real = os.path.realpath(root)
        self._selection = selection
        self._cache = cache
        self._progress = progress
        self.entries: list[SnapshotEntry] = []
        self.exclusions: list[Exclusion] = []
        self.findings: list[Diagnostic] = []

    def run(self) -> None:
        include, exclude = self._selection.include, self._selection.exclude
        for pattern in include:
            if is_secret(pattern.strip("/")):
                self.findings.append(_secret_included(pattern))
        for field, patterns in (("code.include", include), ("code.exclude", exclude)):
            for pattern in patterns:
                if problem := bad_pattern(pattern):
                    self.findings.append(
                        Diagnostic(
                            code="pattern_invalid",
                            summary=f"`{pattern}` in `{field}` is no git pattern: {problem}",
                            hint="write it as in a `.gitignore`, such as `data/*.csv`",
                        )
                    )
        for path in self._selection.link:
            self._check_link(path)
        if self.findings:
            return
        # All names before any content: a wrong root is refused before it is read.
        files = list(islice(self._files(""), MOST_FILES + 1))
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
        for number, file in enumerate(files):
            advance = partial(self._progress.advance, "hashing", number, len(files))
            advance()
            self._take(file, advance)
        shown_paths = {item.path for item in self.exclusions}
        for path in sorted(self._selection.linked):  # some lie in excluded folders
            shown = f"{path}/" if os.path.isdir(os.path.join(self._root, path)) else path
            if shown not in shown_paths:
                self.exclusions.append(Exclusion(shown, SelectionRule.LINK))

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

    def _files(
        self, folder: str, within: Exclusion | None = None
    ) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """The files of a folder that are code. `within` is the exclusion of a folder in which
        `include` may name something."""
        try:
            entries = sorted(
                os.scandir(os.path.join(self._root, folder)), key=lambda entry: entry.name
            )
        except OSError as error:
            self._unreadable(folder, error)
            return
        names = {entry.name for entry in entries}
        whole = self._selection.whole_folder(folder, names) if folder else None
        if whole is not None:
            self.exclusions.append(within or whole)
            if whole.rule is SelectionRule.SUBMODULE:
                self.findings.append(_empty_submodule(folder))
            return
        try:
            self._selection.enter(folder, names)
        except OSError as error:
            self._unreadable(str(error.filename), error)
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            exclusion = self._selection.entry(path, entry.name, folder=is_folder, within=within)
            if exclusion is None:
                if is_folder:
                    yield from self._files(path)
                else:
                    yield path, entry
            elif is_folder and exclusion.pattern and self._selection.reaches_into(path):
                yield from self._files(path, exclusion)
            else:
                self.exclusions.append(exclusion)

    def _take(self, item: tuple[str, os.DirEntry[str]], advance: Callable[[], None]) -> None:
        path, entry = item
        try:
            facts = entry.stat(follow_symlinks=False)
            exclusion = self._selection.file(path, facts)
            if exclusion is not None:
                self.exclusions.append(exclusion)
                self._say_kept_back(path, exclusion, facts)
                return
            if stat.S_ISLNK(facts.st_mode):
                self._take_link(path, entry)
                return
            content = self._cache.digest(entry.path, facts, advance)
        except OSError as error:
            self._unreadable(path, error)
            return
        executable = bool(facts.st_mode & stat.S_IXUSR)
        self.entries.append(SnapshotEntry(path, content, facts.st_size, executable))

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
        self.entries.append(SnapshotEntry(path, "", 0, executable=False, target=target))

    def _say_kept_back(self, path: str, exclusion: Exclusion, facts: os.stat_result) -> None:
        if exclusion.rule is SelectionRule.OUTPUT:
            self.findings.append(_own_output(path))
        elif exclusion.rule is SelectionRule.SECRET and path in {
            pattern.strip("/") for pattern in self._selection.include
        }:
            self.findings.append(_secret_included(path))
        elif exclusion.rule is SelectionRule.SPECIAL and not stat.S_ISSOCK(facts.st_mode):
            self.findings.append(
                Diagnostic(
                    code="code_special_file",
                    summary=f"`{path}` is {special_kind(facts.st_mode)}, which cannot travel with "
                    "the code",
                    hint=f"move it away, or list `{path}` in `code.exclude`",
                )
            )

    def _unreadable(self, path: str, error: OSError) -> None:
        self.findings.append(
            Diagnostic(
                code="code_unreadable",
                summary=f"`{path or self._root}` cannot be read: {error.strerror}",
                hint="put a file in its place, or move it away"
                if isinstance(error, NotRegular)
                else "mend its permissions, or leave it out with `code.exclude`",
            )
        )


def _own_output(path: str) -> Diagnostic:
    return Diagnostic(
        code="own_output",
        severity=Severity.WARNING,
        summary=f"`{path}` is written by this command and is not part of the code; "
        "the next plan would take it for code",
        hint=f"name it `*.log`, list `{path}` in `.sgpuignore`, or write it elsewhere",
    )


def _empty_submodule(folder: str) -> Diagnostic:
    return Diagnostic(
        code="submodule_empty",
        severity=Severity.WARNING,
        summary=f"the submodule `{folder}` is empty, so ranks find nothing in it",
        hint="fetch it with `git submodule update --init`",
    )


def _secret_included(pattern: str) -> Diagnostic:
    return Diagnostic(
        code="secret_included",
        summary=f"`code.include` names `{pattern}`, which looks like a secret",
        hint="pass secrets by `env.secrets`, never with the code",
    )
