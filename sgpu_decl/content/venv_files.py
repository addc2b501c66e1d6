"""The files of a tree beside its packages: they make it a virtual environment, and keep installers
away."""

from __future__ import annotations

import os
from typing import NamedTuple

from sgpu_decl.content import tree_start
from sgpu_decl.content.manifest import BadManifest
from sgpu_decl.content.tree_files import RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.content.manifest import Manifest, Python

_START = "_sgpu_tree"
# `.pth` files run in the order of their names: other ones come first.
_PTH = "zzzz_sgpu.pth"


class VenvFiles(NamedTuple):
    """By path: contents of files, contents of programs, targets of links."""

    files: dict[str, bytes]
    programs: dict[str, bytes]
    links: dict[str, str]

    @property
    def paths(self) -> list[str]:
        return [*self.files, *self.programs, *self.links]


def packages_folder(python: Python) -> str:
    """The folder in which this interpreter looks for packages, relative to the tree."""
    free_threaded = "t" if python.abi.split("-")[1].endswith("t") else ""
    return f"lib/python{python.minor}{free_threaded}/site-packages"


def venv_files(manifest: Manifest, interpreter: str) -> VenvFiles:
    """The files to make beside those of the manifest, for the base interpreter at a path.

    Raises:
        BadManifest: it has one of these itself.
    """
    packages = packages_folder(manifest.python)
    here = {file.path for file in manifest.files}
    further = [site for site in manifest.sites if site != packages]
    begin = f"import {_START}; {_START}.begin({', '.join(map(ascii, further))})\n"
    refusing = b"#!/bin/sh\ncat >&2 <<'END'\n" + tree_start.REFUSAL.encode() + b"END\nexit 1\n"
    venv = VenvFiles(
        files={
            "pyvenv.cfg": os.fsencode(
                f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n"
                f"version = {manifest.python.version}\nexecutable = {interpreter}\n"
            ),
            f"{os.path.dirname(packages)}/EXTERNALLY-MANAGED": _externally_managed(),
            f"{packages}/{_START}.py": _start_source(),
            f"{packages}/{_PTH}": begin.encode("ascii"),
        },
        # Without these, `pip` would be the one of the machine on the PATH.
        programs={path: refusing for path in ("bin/pip", "bin/pip3") if path not in here},
        links={
            "bin/python": interpreter,
            "bin/python3": "python",
            f"bin/python{manifest.python.minor}": "python",
            "lib64": "lib",
        },
    )
    own = {*venv.paths, RECORD}
    for path in here:
        if path in own or path.startswith("lib64/"):
            raise BadManifest(f"{path!r} is a file that every tree has of its own")
    return venv


def _externally_managed() -> bytes:
    """PEP 668: the text is a value in an INI file, with indented continuation lines."""
    _, _, text = tree_start.REFUSAL.strip().partition("\n\n")
    return ("[externally-managed]\nError=" + text.replace("\n", "\n  ") + "\n").encode("ascii")


def _start_source() -> bytes:
    """Read by the loader, since it may lie in a zip."""
    return bytes(tree_start.__loader__.get_data(tree_start.__file__))  # type: ignore[union-attr]
