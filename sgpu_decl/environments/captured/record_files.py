"""Files that packages install outside of the package folders: commands, data, headers."""

import os
import re
import stat
from collections.abc import Iterator

from sgpu_decl.environments.captured.file_walk import WalkEntry, walk_entry
from sgpu_decl.environments.captured.file_worker import Form
from sgpu_decl.environments.captured.normal_form import is_script
from sgpu_decl.environments.captured.site_layout import Layout, Root

HEAD = 4096  # bytes of a file that say whether it is a script
_OUTSIDE = re.compile(rb'^"?((?:\.\./)+[^"\n]*?)"?,[^,\n]*,[^,\n]*$', re.MULTILINE)
# Every tree has its own.
_OWN = re.compile(r"pyvenv\.cfg|bin/(?:python[\d.]*|[aA]ctivate.*)|lib(?:64)?|lib/python[\d.]+")


def listed_files(layout: Layout) -> Iterator[WalkEntry]:
    """The files that RECORD lists outside of its folder, inside of the prefix (`../../../bin/x`).

    Of equal paths the first on the interpreter's path counts.
    """
    trees: set[str] = set()
    for root in layout.roots:
        if root.project:
            continue
        prefix = os.path.normpath(os.path.join(root.path, "../../.."))
        for inner in sorted(_outside(root)):
            path = os.path.normpath(os.path.join(root.path, inner))
            tree = os.path.relpath(path, prefix)
            if tree in trees or layout.tree_of(path) is not None or not _may_be(tree):
                continue
            try:
                facts = os.stat(path)
                if stat.S_ISREG(facts.st_mode):
                    how = Form.SCRIPT if _begins_as_script(path) else Form.PLAIN
                    yield walk_entry(tree, path, how, facts)
                    trees.add(tree)
            except OSError:
                continue  # deleted since it was installed


def _outside(root: Root) -> set[str]:
    paths: set[str] = set()
    try:
        names = [name for name in os.listdir(root.path) if name.endswith(".dist-info")]
    except OSError:
        return paths  # the walk reports it
    for name in names:
        try:
            with open(os.path.join(root.path, name, "RECORD"), "rb") as file:
                paths.update(map(os.fsdecode, _OUTSIDE.findall(file.read())))
        except OSError:
            continue  # packages of the system have none
    return paths


def _may_be(tree: str) -> bool:
    parts = tree.split("/")
    return parts[0] != ".." and parts[-1][-4:] != ".pyc" and not _OWN.fullmatch(tree)


def _begins_as_script(path: str) -> bool:
    with open(path, "rb") as file:
        return is_script(file.read(HEAD))
