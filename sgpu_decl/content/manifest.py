"""The content of a Python environment: the form that capture writes, and that trees and packs are
made from.

A tree that is made from a manifest looks like a virtual environment:

    pyvenv.cfg  bin/python  bin/<scripts>  lib/python3.11/site-packages/…  share/…

The digest covers `files`, `sites` and `python`, but not bytecode.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

FORMAT = 1
MOST = 2_000_000  # files; a larger manifest is refused as malicious
_HEX = re.compile(r"[0-9a-f]{64}")


class BadManifest(ValueError):
    """The text is not a manifest, is damaged, or has paths that must not be written."""


class FileKind:
    """The kind of a path. In the first line of a script, `#!python` becomes the path of the tree's
    interpreter, as in wheels. The content of a link is its target, relative and inside the tree."""

    FILE = "f"
    EXECUTABLE = "x"
    SCRIPT = "s"
    LINK = "l"


class File(NamedTuple):
    """`path` is relative to the tree, with `/`, and may hold surrogate escapes; `content` is the
    SHA-256 of the bytes in hex, or a link's target; `size` counts bytes, 0 for links."""

    path: str
    kind: str
    size: int
    content: str

    @property
    def key(self) -> str:
        """The name of its object: files with the same bytes and mode share one."""
        return self.content + ".x" if self.kind == FileKind.EXECUTABLE else self.content


class Python(NamedTuple):
    """The interpreter of an environment: `cpython`, `3.11.7`, `cpython-311-x86_64-
    linux-gnu` (the tag of its extension modules), `linux-x86_64`, `glibc-2.36`."""

    implementation: str
    version: str
    abi: str
    platform: str
    libc: str

    @property
    def minor(self) -> str:
        """`3.11`"""
        return ".".join(self.version.split(".")[:2])


class Manifest(NamedTuple):
    """One environment. `sites` are its folders on `sys.path`, relative to the tree, in order;
    `packages` are pairs of normalised name and version, sorted; `files` and `bytecode` are sorted
    by path, and bytecode holds unchecked hash-based pyc files alone (PEP 552)."""

    python: Python
    sites: "tuple[str, ...]"
    packages: "tuple[tuple[str, str], ...]"
    files: "tuple[File, ...]"
    bytecode: "tuple[File, ...]" = ()

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the interpreter, the sites and the files."""
        text = _text([FORMAT, self.python, self.sites, self.files])
        return "sha256:" + hashlib.sha256(text).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files, bytecode aside."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Canonical JSON, ASCII."""
        return _text(
            {
                "v": FORMAT,
                "python": self.python,
                "sites": self.sites,
                "packages": self.packages,
                "files": self.files,
                "bytecode": self.bytecode,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, digest: "str | None" = None) -> "Manifest":
        """Read a manifest and check that it is safe to write.

        Args:
            digest: the expected digest.

        Raises:
            BadManifest: not a manifest, another digest, or a path that leads out of the tree,
                occurs
                twice, differs from another only in case, or lies below a file or a link.
        """
        try:
            raw = json.loads(data)
            manifest = cls(
                Python(*map(str, raw["python"])),
                tuple(map(str, raw["sites"])),
                tuple((str(name), str(version)) for name, version in raw["packages"]),
                tuple(_file(*entry) for entry in raw["files"]),
                tuple(_file(*entry) for entry in raw["bytecode"]),
            )
            version = raw["v"]
        except BadManifest:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadManifest(f"not a manifest of an environment: {error}") from None
        if version != FORMAT:
            raise BadManifest(f"a manifest of another format: {version!r}")
        if digest is not None and manifest.digest != digest:
            raise BadManifest("the manifest was altered: it has another digest")
        for site in manifest.sites:
            check_path(site)
        _check_tree([*manifest.files, *manifest.bytecode])
        return manifest


def check_path(path: str) -> None:
    """Refuse a path that is not a plain relative path below the tree.

    Raises:
        BadManifest: absolute, empty, with `.`, `..`, an empty part, a NUL or a backslash.
    """
    framed = f"/{path}/"
    if "//" in framed or "/./" in framed or "/../" in framed or "\0" in path or "\\" in path:
        raise BadManifest(f"the path {path!r} leads out of the environment")


def _file(path: Any, kind: Any, size: Any, content: Any) -> File:
    if not isinstance(path, str) or not isinstance(content, str) or type(size) is not int:
        raise BadManifest(f"not an entry of a manifest: {path!r}")
    check_path(path)
    if kind == FileKind.LINK:
        _check_link(path, content)
    elif kind not in (FileKind.FILE, FileKind.EXECUTABLE, FileKind.SCRIPT):
        raise BadManifest(f"{path!r} is neither a file nor a link: {kind!r}")
    elif not _HEX.fullmatch(content) or size < 0:
        raise BadManifest(f"{path!r} has no digest or no size")
    return File(path, kind, size, content)


def _check_link(path: str, target: str) -> None:
    """`..` may only come first: then a chain of links cannot climb further than each link does."""
    parts = target.split("/")
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    if up > path.count("/") or not target or "\0" in target or ".." in parts[up:] or not parts[0]:
        raise BadManifest(f"the link {path!r} leads out of the environment: {target!r}")


def _check_tree(files: "Iterable[File]") -> None:
    """Refuse paths that some file systems take for the same, and paths below a file or link."""
    paths: set[str] = set()
    leaves: set[str] = set()
    folders: dict[str, str] = {}
    for file in files:
        folded = file.path.casefold()
        if folded in paths:
            raise BadManifest(f"{file.path!r} occurs twice, or differs from another in case alone")
        paths.add(folded)
        leaves.add(folded)
        folder = file.path.rpartition("/")[0]
        while folder and folders.get(folder.casefold()) != folder:
            if folders.setdefault(folder.casefold(), folder) != folder:
                raise BadManifest(f"the folder {folder!r} differs from another in case alone")
            folder = folder.rpartition("/")[0]
    if len(paths) > MOST:
        raise BadManifest(f"more than {MOST:,} files")
    for folder in folders:
        if folder in leaves:
            raise BadManifest(f"{folder!r} is a file or link, and files lie below it")


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
