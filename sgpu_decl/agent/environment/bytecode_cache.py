"""Bytecode for the sources of a tree that have none, compiled once for each source ever.

It lies in `bytecode/<cache tag>/<source>-<pyc>` of the store, both named by SHA-256, and is linked
into trees like objects. It is unchecked and hash-based (PEP 552): it depends on nothing but the
source, and Python does not look at the source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import warnings

from sgpu_decl.agent.environment.tree_files import FIXED_NS, as_bytes
from sgpu_decl.agent.environment.tree_links import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sgpu_decl.agent.environment.manifest import Manifest
    from sgpu_decl.agent.environment.venv_files import Furnishing

    Source = tuple[str, Sequence[str], str]  # digest, its paths, the name of its bytecode or ""

__all__ = ["Compiler", "bytecode_path", "cached", "compile_source", "uncompiled"]

_UNCHECKED = (1).to_bytes(4, "little")


def uncompiled(manifest: Manifest, furnishing: Furnishing, tag: str) -> dict[str, list[str]]:
    """Return the sources on the path without bytecode for `tag`: paths by digest."""
    present = {file.path for file in (*manifest.files, *manifest.bytecode)}
    sites = tuple(site + "/" for site in manifest.sites)
    sources: dict[str, list[str]] = {}
    for path, content in furnishing.files.items():
        if path.endswith(".py"):
            sources[hashlib.sha256(content).hexdigest()] = [path]
    for file in manifest.files:
        on_path = file.kind in "fx" and file.path.endswith(".py") and file.path.startswith(sites)
        if on_path and bytecode_path(file.path, tag) not in present:
            sources.setdefault(file.content, []).append(file.path)
    return sources


def bytecode_path(source: str, tag: str) -> str:
    """Return where Python looks for the bytecode of a source."""
    folder, slash, name = source.rpartition("/")
    return f"{folder}{slash}__pycache__/{name[: -len('.py')]}.{tag}.pyc"


def cached(folder: str) -> dict[str, str]:
    """Return the names of the bytecode in a folder, by the digest of the source."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    return {name.partition("-")[0]: name for name in sorted(names, reverse=True) if "-" in name}


def compile_source(source: bytes) -> bytes | None:
    """Return the content of a pyc file; None if the source is not Python of this version.

    The file name within does not matter: loading sets it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, "<sgpu>", "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


class Compiler:
    """Puts bytecode into the tree in the current folder; new bytecode is also put into `folder`."""

    def __init__(self, folder: str, tag: str) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._tag = tag

    def compile(self, sources: Iterable[Source]) -> list[str]:
        """Do it for all sources; one that does not compile is passed over."""
        for digest, paths, name in sources:
            if not (name and self._place(name, paths)):
                name = self._compile(digest, paths[0])
                if name:
                    self._place(name, paths)
        return []

    def _place(self, name: str, paths: Sequence[str]) -> bool:
        """Verify and link bytecode; False if it is missing or damaged, and then it is deleted."""
        try:
            source = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except FileNotFoundError:
            return False
        with open(source, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != name.partition("-")[2]:
                os.unlink(name, dir_fd=self._folder)
                return False
            for path in paths:
                place(name, self._folder, source, as_bytes(bytecode_path(path, self._tag)))
        return True

    def _compile(self, digest: str, path: str) -> str:
        with open(as_bytes(path), "rb") as file:
            pyc = compile_source(file.read())
        if pyc is None:
            return ""
        name = f"{digest}-{hashlib.sha256(pyc).hexdigest()}"
        temporary = os.urandom(8).hex() + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600, dir_fd=self._folder), "wb") as file:
            file.write(pyc)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.utime(file.fileno(), ns=(FIXED_NS, FIXED_NS))
        os.rename(temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        return name
