"""Lists every file, link and bytecode folder of an environment, with its stat values.

Files are not read here. A link inside the environment becomes a link in the tree. A link that leads
out becomes a copy of its target, so that a tree depends on nothing outside of it.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.code.ignore_rules import RULES, IgnoreRules
from sgpu_decl.code.secret_files import content_is_secret, is_secret
from sgpu_decl.code.selection import never_code
from sgpu_decl.content.manifest import MOST, FileKind
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.environments.captured.file_worker import FileStat, Form
from sgpu_decl.environments.captured.site_layout import Layout, Root

MOST_OF_PROJECT = 200_000  # files; a larger folder is a home folder, or data
_CACHE = "__pycache__"


class WalkEntry(NamedTuple):
    """One file: its path in the tree, its path on the disk, its kind, and how it is read."""

    tree: str
    path: str
    kind: str
    how: str
    facts: FileStat


@dataclass(slots=True)
class WalkResult:
    """`links` are pairs of tree paths, link and target; `caches` are `__pycache__` folders, with a
    trailing `/`."""

    entries: list[WalkEntry] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    caches: list[WalkEntry] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)


def walk(layout: Layout) -> WalkResult:
    """Walk all roots of a layout."""
    result = WalkResult()
    others = frozenset(root.path for root in layout.roots)
    for root in layout.roots:
        _Walk(layout, root, others, result).run()
    return result


def walk_entry(tree: str, path: str, how: str, facts: os.stat_result) -> WalkEntry:
    """The entry of a regular file, or of a bytecode folder."""
    kind = FileKind.EXECUTABLE if facts.st_mode & 0o100 else FileKind.FILE
    if how == Form.SCRIPT:
        kind = FileKind.SCRIPT
    stamp = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
    return WalkEntry(tree, path, kind, how, stamp)


# Takes a folder's path, relative to the root with a trailing `/`, empty for the root itself, and
# returns a function: from an entry's name and whether it is a folder to whether it is left out.
_Choice = Callable[[str], Callable[[str, bool], bool]]

_CACHES = frozenset(
    {".git", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
# Installers' notes about how a package was installed.
_NOTES = re.compile(r"INSTALLER|REQUESTED|uv_\w+\.json")
# Git may ignore these, and imports need them: extension modules, generated sources.
_MADE = (".py", ".so", ".pyi")


def _choice_of(root: Root) -> _Choice:
    """The filter for one root."""
    return _Project(root.path).choice if root.project else _of_site


def _of_site(folder: str) -> Callable[[str, bool], bool]:
    if not folder:
        return _at_top
    return _in_info if folder.endswith(".dist-info/") else _anywhere


def _anywhere(name: str, _is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    return name in _CACHES


def _at_top(name: str, is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    if name.startswith("~"):
        return True  # left over where pip could not delete
    # `site_layout` writes new ones.
    return name in _CACHES or (not is_folder and name.endswith((".pth", ".egg-link")))


def _in_info(name: str, is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    return not is_folder and _NOTES.fullmatch(name) is not None


class _Project:
    """The rules for code, except for files that git ignores and imports need."""

    def __init__(self, path: str) -> None:
        self._path = path
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        # An installed package may lie in a checkout of somebody else, about which git answers
        # nothing, so git is not asked.
        self._ignoring = IgnoreRules(Path(folder), whole_repository=False)

    def choice(self, folder: str) -> Callable[[str, bool], bool]:
        self._enter(folder)
        return partial(self._leaves_out, folder)

    def _leaves_out(self, folder: str, name: str, is_folder: bool) -> bool:  # noqa: FBT001
        path = folder + name
        if never_code(name, folder=is_folder) or is_secret(path):
            return True
        if not is_folder and content_is_secret(os.path.join(self._path, path)):
            return True
        if is_folder and os.path.exists(os.path.join(self._path, path, "pyvenv.cfg")):
            return True
        if name.endswith((".egg-info", *_MADE)):
            return False
        return self._ignoring.ignores(path, folder=is_folder)

    def _enter(self, folder: str) -> None:
        where = os.path.join(self._path, folder)
        names = [name for name in RULES if os.path.isfile(os.path.join(where, name))]
        self._ignoring.enter(folder.rstrip("/"), names)


class _Walk:
    def __init__(
        self, layout: Layout, root: Root, others: frozenset[str], result: WalkResult
    ) -> None:
        self._layout = layout
        self._root = root
        self._result = result
        self._others = others
        # Folders to walk: tree path and path, both with a trailing `/`, and the real paths of the
        # outside folders that links led through.
        self._open: list[tuple[str, str, frozenset[str]]] = []

    @cached_property
    def _choice(self) -> _Choice:
        return _choice_of(self._root)  # a root that is one file needs none

    def run(self) -> None:
        root = self._root
        most = len(self._result.entries) + (MOST_OF_PROJECT if root.project else MOST)
        if os.path.isdir(root.path):
            self._open.append((f"{root.tree}/", f"{root.path}/", frozenset()))
        else:
            self._entry(root.tree, root.path, "", frozenset())
        while self._open and len(self._result.entries) <= most:
            tree, path, chain = self._open.pop()
            try:
                self._folder(tree, path, chain)
            except OSError as error:
                self._unreadable(path.rstrip("/"), error)
        if len(self._result.entries) > most:
            self._say_too_many()

    def _folder(self, tree: str, path: str, chain: frozenset[str]) -> None:
        inner = tree[len(self._root.tree) + 1 :]
        leaves_out, left_out = self._choice(inner), self._layout.left_out
        plain = not inner.endswith(".dist-info/")
        files, caches, other_roots = self._result.entries, self._result.caches, self._others
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                whole = path + name
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and name == _CACHE:
                    with contextlib.suppress(OSError):  # missing bytecode is compiled again
                        facts = entry.stat(follow_symlinks=False)
                        caches.append(
                            walk_entry(f"{tree}{name}/", f"{whole}/", Form.BYTECODE, facts)
                        )
                elif leaves_out(name, is_folder) or whole in left_out:
                    continue
                elif is_folder:
                    if whole not in other_roots:
                        self._open.append((f"{tree}{name}/", f"{whole}/", chain))
                elif plain and entry.is_file(follow_symlinks=False) and name[-4:] != ".pyc":
                    try:  # most entries: the short way
                        files.append(walk_entry(tree + name, whole, Form.PLAIN, entry.stat()))
                    except OSError as error:
                        self._unreadable(whole, error)
                else:
                    self._entry(tree + name, whole, inner, chain)

    def _entry(self, tree: str, path: str, inner: str, chain: frozenset[str]) -> None:
        try:
            facts = os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                self._link(tree, path, chain)
            elif not stat.S_ISREG(facts.st_mode):
                self._warn("special_file", f"`{path}` is not a regular file and is left out")
            elif not (path.endswith(".pyc") and os.path.exists(path[:-1])):
                how = Form.PLAIN
                if inner.endswith(".dist-info/"):
                    if path.endswith("/direct_url.json") and _is_local(path):
                        return
                    if path.endswith("/RECORD"):
                        how = Form.RECORD
                self._result.entries.append(walk_entry(tree, path, how, facts))
        except OSError as error:
            self._unreadable(path, error)

    def _link(self, tree: str, path: str, chain: frozenset[str]) -> None:
        target = os.readlink(path)
        try:
            facts = os.stat(path)
        except OSError:
            self._warn(
                "link_dangling", f"`{path}` is left out: its target `{target}` does not exist"
            )
            return
        lexical = os.path.normpath(os.path.join(os.path.dirname(path), target))
        is_folder = stat.S_ISDIR(facts.st_mode)
        # `realpath` is slow, and some environments are all links: it is called only where it may
        # matter.
        real = os.path.realpath(path) if is_folder or self._layout.tree_of(lexical) else lexical
        inside = self._layout.tree_of(real)
        if inside is not None:
            self._result.links.append((tree, inside))
        elif not is_folder:
            if stat.S_ISREG(facts.st_mode):
                self._result.entries.append(walk_entry(tree, path, Form.PLAIN, facts))
        elif real in chain:
            self._warn("link_circular", f"`{path}` is left out: the link leads back to itself")
        else:
            self._open.append((f"{tree}/", f"{real}/", chain | {real}))

    def _warn(self, code: str, summary: str) -> None:
        self._result.findings.append(
            Diagnostic(code=code, severity=Severity.WARNING, summary=summary)
        )

    def _unreadable(self, path: str, error: OSError) -> None:
        self._result.findings.append(
            Diagnostic(
                code="environment_unreadable",
                summary=f"`{path}` of the environment cannot be read: {error.strerror}",
                hint="mend its permissions, or wait until nothing is being installed",
            )
        )

    def _say_too_many(self) -> None:
        most = MOST_OF_PROJECT if self._root.project else MOST
        self._result.findings.append(
            Diagnostic(
                code="environment_too_many_files",
                summary=f"`{self._root.path}` is on the interpreter's path and holds more than "
                f"{most:,} files",
                hint="list its data in `.gitignore`, or install the package that you need from it",
            )
        )


def _is_local(path: str) -> bool:
    """Whether a `direct_url.json` (PEP 610) names a path of this machine."""
    try:
        with open(path, "rb") as file:
            return str(json.load(file)["url"]).startswith("file:")
    except (ValueError, KeyError, TypeError):
        return True
