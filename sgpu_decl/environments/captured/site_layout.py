"""Which folders an interpreter's packages lie in, and where each of them goes in a tree.

`.pth` files are resolved here: a line that names a folder becomes a place of its own on the tree's
path, in the same order; what a line imports stays, unless it is the finder of an editable
installation, whose packages are taken instead.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.environments.captured.editables import (
    editable_folders,
    editable_of,
    named_places,
)
from sgpu_decl.environments.captured.interpreter_facts import InterpreterFacts
from sgpu_decl.regular_files import is_below


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or module at `path`, which goes to `tree`; `real` is `path` without links. A project
    is code under development: its files are chosen by the rules for code."""

    tree: str
    path: str
    real: str
    project: bool = False

    @classmethod
    def at(cls, tree: str, path: str, *, project: bool = False) -> "Root":
        return cls(tree, path, os.path.realpath(path), project)


@dataclass(slots=True)
class Layout:
    """`sites` are folders of the tree, in the order of its path; `new_contents` are files with new
    contents; `left_out` are absolute paths. `unread` are `.pth` files with unknown code, each with
    a folder or file that the code names."""

    library: str
    sites: list[str] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    new_contents: dict[str, bytes] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    findings: list[Diagnostic] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)

    def tree_of(self, path: str) -> str | None:
        """The tree path for `path`, links not followed; `None` if it is in none of the roots."""
        for root in self.roots:
            for place in (root.real, root.path):
                if path == place or path.startswith(place + os.sep):
                    return root.tree + path[len(place) :]
        return None


def lay_out(interpreter: InterpreterFacts) -> Layout:
    """Find the roots of an interpreter's environment, and their places in the tree."""
    threads = "t" if re.match(r"cpython-\d+t", interpreter.python.abi) else ""  # PEP 703
    layout = Layout(f"lib/python{interpreter.python.minor}{threads}")
    mapped: dict[str, str] = {}
    for site in interpreter.sites:
        layout.roots.append(Root.at(_next(layout), site))
    for root in tuple(layout.roots):
        layout.sites.append(root.tree)
        for name in _pth_files(root.path):
            _resolve(layout, root, name, mapped)
    if mapped:
        # Their finder is the last one, so they come last too.
        site = _next(layout)
        layout.sites.append(site)
        for module, path in sorted(mapped.items()):
            tree = f"{site}/{module.replace('.', '/')}"
            suffix = "" if os.path.isdir(path) else os.path.splitext(path)[1]
            layout.roots.append(Root.at(tree + suffix, path, project=True))
    layout.findings += _of_live_trees(layout, interpreter)
    return layout


def _of_live_trees(layout: Layout, interpreter: InterpreterFacts) -> Iterator[Diagnostic]:
    """Warnings for packages that ranks would import from the user's own folders."""
    reported: set[str] = set()
    for pth, place in layout.unread:
        if layout.tree_of(os.path.realpath(place)) is None and pth not in reported:
            reported.add(pth)
            yield _live_tree(f"`{pth}` runs code that names `{place}`")
    for site in interpreter.sites:
        for name, folder in editable_folders(site):
            real = os.path.realpath(folder)
            if not any(root.real == real or is_below(root.real, real) for root in layout.roots):
                yield _live_tree(f"`{name}` is installed in editable mode from `{folder}`")


def _live_tree(what: str) -> Diagnostic:
    return Diagnostic(
        code="editable_not_taken",
        severity=Severity.WARNING,
        summary=f"{what}, and none of its files were captured: ranks on this machine may import "
        "the live files, and ranks elsewhere find none",
        hint="install the package without `-e`, or put its code into `code.root`",
    )


def _next(layout: Layout) -> str:
    count = len({root.tree.split("/")[2] for root in layout.roots})
    return f"{layout.library}/" + (f"site-{count}" if count else "site-packages")


def _pth_files(site: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(site))
    except OSError:
        return
    yield from (name for name in names if name.endswith(".pth") and not name.startswith("."))


def _resolve(layout: Layout, root: Root, name: str, mapped: dict[str, str]) -> None:
    site = root.path
    path = os.path.join(site, name)
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as error:
        layout.findings.append(
            Diagnostic(
                code="pth_unreadable",
                severity=Severity.WARNING,
                summary=f"`{path}` cannot be read, and its folders are left out: {error.strerror}",
                hint="mend its permissions if your code needs these folders",
            )
        )
        return
    imports = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(("import ", "import\t")):
            _add(layout, os.path.abspath(os.path.join(site, line.rstrip())), path)
        elif (editable := editable_of(site, line)) is not None:
            layout.left_out.add(editable.finder)
            for module, place in editable.packages.items():
                mapped.setdefault(module, place)
            for inner, place in editable.files.items():
                layout.roots.append(Root.at(f"{root.tree}/{inner}", place, project=True))
        else:
            imports.append(line)
            layout.unread += ((path, place) for place in named_places(site, line))
    if imports:
        text = "".join(f"{line}\n" for line in imports).encode("utf-8", "surrogateescape")
        layout.new_contents[f"{root.tree}/{name}"] = text


def _add(layout: Layout, folder: str, pth: str) -> None:
    if not os.path.exists(folder):
        return  # `site` ignores it too
    real = os.path.realpath(folder)
    inside = layout.tree_of(real)
    if inside is not None:
        if inside not in layout.sites:
            layout.sites.append(inside)
    elif not os.path.isdir(real):
        layout.findings.append(
            Diagnostic(
                code="pth_not_folder",
                severity=Severity.WARNING,
                summary=f"`{pth}` adds `{folder}`, which is not a folder and is left out",
                hint="install its contents as a package",
            )
        )
    else:
        site = _next(layout)
        layout.sites.append(site)
        layout.roots.append(Root.at(site, folder, project=not _is_site(folder)))


def _is_site(folder: str) -> bool:
    """Whether the folder holds installed packages: another environment, added as a whole."""
    return os.path.basename(folder) in ("site-packages", "dist-packages")
