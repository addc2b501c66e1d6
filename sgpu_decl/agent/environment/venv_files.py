"""The files of a tree beside its packages: they make it an environment for Python, and tell
installers not to change it."""

from __future__ import annotations

import os
from typing import NamedTuple

from sgpu_decl.agent.environment import tree_start
from sgpu_decl.agent.environment.manifest import BadManifest
from sgpu_decl.agent.environment.tree_files import RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.environment.manifest import Manifest, Python

__all__ = ["Furnishing", "furnish", "packages_folder"]

_START = "_sgpu_tree"
# Python reads these files in the order of names, so those of other packages come first.
_PTH = "zzzz_sgpu.pth"


class Furnishing(NamedTuple):
    """The content of files and of programs, and the targets of links, by path."""

    files: dict[str, bytes]
    programs: dict[str, bytes]
    links: dict[str, str]

    @property
    def paths(self) -> list[str]:
        return [*self.files, *self.programs, *self.links]


def packages_folder(python: Python) -> str:
    """Return where this interpreter looks for packages, relative to the tree."""
    free_threaded = "t" if python.abi.split("-")[1].endswith("t") else ""
    return f"lib/python{python.minor}{free_threaded}/site-packages"


def furnish(manifest: Manifest, interpreter: str) -> Furnishing:
    """Return the files to make beside those of the manifest, for the base interpreter at a path.

    Raises:
        BadManifest: it has one of these itself.
    """
    packages = packages_folder(manifest.python)
    paths = {file.path for file in manifest.files}
    further = [site for site in manifest.sites if site != packages]
    begin = f"import {_START}; {_START}.begin({', '.join(map(ascii, further))})\n"
    refusing = b"#!/bin/sh\ncat >&2 <<'END'\n" + tree_start.REFUSAL.encode() + b"END\nexit 1\n"
    furnishing = Furnishing(
        files={
            "pyvenv.cfg": os.fsencode(
                f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n"
                f"version = {manifest.python.version}\nexecutable = {interpreter}\n"
            ),
            f"{os.path.dirname(packages)}/EXTERNALLY-MANAGED": _externally_managed(),
            f"{packages}/{_START}.py": _start_source(),
            f"{packages}/{_PTH}": begin.encode("ascii"),
        },
        # Without these, an environment without pip would find one of the machine on the PATH.
        programs={path: refusing for path in ("bin/pip", "bin/pip3") if path not in paths},
        links={
            "bin/python": interpreter,
            "bin/python3": "python",
            f"bin/python{manifest.python.minor}": "python",
            "lib64": "lib",
        },
    )
    own = {*furnishing.paths, RECORD}
    for path in paths:
        if path in own or path.startswith("lib64/"):
            raise BadManifest(f"{path!r} is a file that only the tree itself has")
    return furnishing


def _externally_managed() -> bytes:
    """PEP 668: the text is the value in an INI file, so its other lines are indented."""
    _, _, text = tree_start.REFUSAL.strip().partition("\n\n")
    return ("[externally-managed]\nError=" + text.replace("\n", "\n  ") + "\n").encode("ascii")


def _start_source() -> bytes:
    """Read by the loader, since the module may lie in a zip."""
    return bytes(tree_start.__loader__.get_data(tree_start.__file__))  # type: ignore[union-attr]
