"""Makes the tree of an environment from its manifest and objects.

    checking ─▶ folders ─▶ linking, each object verified ─▶ closing ─▶ renamed
        └ another Python, or none: nothing is made

No package is compiled. Bytecode that is missing is written by the ranks that first import a module,
as everywhere, into folders that stay open for it; an earlier tree beside this one may have it.

A tree is made beside its final place and renamed. If another process was faster, its tree is used.
Leftovers of a killed process are removed by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from types import MappingProxyType

from sgpu_decl.content.manifest import FileKind
from sgpu_decl.content.python_match import mismatch
from sgpu_decl.content.tree_files import (
    MAKING,
    RECORD,
    altered,
    as_bytes,
    bytecode_path,
    clear,
    install,
    making,
    record_of,
    remove,
    whole,
)
from sgpu_decl.content.tree_links import write_file, write_link
from sgpu_decl.content.venv_files import venv_files
from sgpu_decl.content.workers import WorkerPool, batches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sgpu_decl.content.manifest import Manifest
    from sgpu_decl.content.tree_links import Item
    from sgpu_decl.content.venv_files import VenvFiles

    Advance = Callable[[str, int, int], None]

__all__ = ["DamagedObjects", "InterpreterMismatch", "altered", "hydrate", "whole"]

_BATCH_FILES = 400
_LARGE = 4 << 20
_SHALLOW = 4  # names in lib/python3.11/site-packages/package


class DamagedObjects(Exception):
    """Objects are missing or damaged; `objects` are their names."""

    def __init__(self, objects: Iterable[str]) -> None:
        self.objects = sorted(objects)
        few = ", ".join(self.objects[:3]) + (", …" if len(self.objects) > 3 else "")
        super().__init__(f"objects are missing or damaged ({len(self.objects)}): {few}")


class InterpreterMismatch(Exception):
    """The environment was made for another interpreter."""


def _quiet(phase: str, done: int, total: int) -> None:
    pass


def hydrate(
    manifest: Manifest,
    objects: str,
    tree: str,
    python: str,
    *,
    hash_times: Mapping[str, int] = MappingProxyType({}),
    advance: Advance = _quiet,
) -> None:
    """Make the tree of an environment, unless it is complete.

    Args:
        manifest: its content.
        objects: the folder of objects, `ab/<sha256>[.x]`.
        tree: its path. Scripts contain it, so a tree cannot be moved.
        python: the interpreter of the ranks, or one in a virtual environment of it.
        hash_times: when objects were hashed, in ns since the epoch, by name. An object that
            is unchanged since then is not read again.
        advance: called with a phase, `linking`, the bytes done and the total. One call at a time,
            from any thread.

    Raises:
        DamagedObjects: objects are missing or damaged; nothing was made.
        InterpreterMismatch: the environment does not work with that interpreter; nothing was made.
        BadManifest: it has a file that every tree has of its own.
        OSError: the interpreter does not start, or the disk cannot be written.
    """
    tree, objects = os.path.abspath(tree), os.path.abspath(objects)
    if whole(tree):
        return
    with contextlib.closing(WorkerPool(python)) as workers:
        problem = mismatch(manifest.python, workers.python)
        if problem:
            raise InterpreterMismatch(f"this environment cannot be used here: {problem}")
        venv = venv_files(manifest, workers.base)
        parent = os.path.dirname(tree)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        clear(parent)
        place, lock = making(parent)
        try:
            os.mkdir(place, 0o700)
            workers.begin(
                folder=_utf8(place),
                objects=_utf8(objects),
                interpreter=_utf8(tree + "/bin/python"),
            )
            sources = _uncompiled(manifest, workers.tag)
            folders = _folders(manifest, venv, sources)
            _make_folders(folders, workers)
            _link(manifest, workers, hash_times, advance)
            _make_files(manifest, venv, os.fsencode(place) + b"/", folders)
            workers.work("compile", [[path for path in venv.files if path.endswith(".py")]])
            _reuse_bytecode(parent, place, sources, workers.tag)
            half = len(folders) // 2
            workers.work("finish", [folders[:half], folders[half:]])
            install(place, tree)
        finally:
            remove(place)
            os.close(lock)


def _make_files(manifest: Manifest, venv: VenvFiles, place: bytes, folders: list[str]) -> None:
    """Make the files that are not objects, and links."""
    for file in manifest.files:
        if file.kind == FileKind.LINK:
            write_link(place + as_bytes(file.path), as_bytes(file.content))
    for path, target in venv.links.items():
        write_link(place + as_bytes(path), os.fsencode(target))
    for path, content in venv.files.items():
        write_file(place + as_bytes(path), content, 0o444)
    for path, content in venv.programs.items():
        write_file(place + as_bytes(path), content, 0o555)
    sizes = {path: len(content) for path, content in {**venv.files, **venv.programs}.items()}
    write_file(place + as_bytes(RECORD), record_of(manifest, folders, sizes), 0o444)


def _uncompiled(manifest: Manifest, tag: str) -> list[str]:
    """The paths of importable sources without bytecode for `tag`."""
    present = {file.path for file in (*manifest.files, *manifest.bytecode)}
    sites = tuple(site + "/" for site in manifest.sites)
    return [
        file.path
        for file in manifest.files
        if file.kind in "fx" and file.path.endswith(".py") and file.path.startswith(sites)
        and bytecode_path(file.path, tag) not in present
    ]  # fmt: skip


def _reuse_bytecode(parent: str, place: str, sources: Iterable[str], tag: str) -> None:
    """Link what ranks compiled in the newest tree beside this one, of sources that are the same
    file in both. They have one time, so that Python takes it for valid."""
    with contextlib.suppress(OSError):  # another process replaces one
        trees = [item.path for item in os.scandir(parent) if not item.name.startswith(MAKING)]
        trees.sort(key=lambda path: os.stat(path).st_ctime_ns, reverse=True)
        newest = next(filter(whole, trees), None)
        if newest is None:
            return
        old, new = os.fsencode(newest) + b"/", os.fsencode(place) + b"/"
        for source in sources:
            bytecode = as_bytes(bytecode_path(source, tag))
            with contextlib.suppress(OSError):  # it is not there, or cannot be linked
                if os.path.samefile(old + as_bytes(source), new + as_bytes(source)):
                    os.link(old + bytecode, new + bytecode)


def _folders(manifest: Manifest, venv: VenvFiles, sources: Iterable[str]) -> list[str]:
    """All folders of the tree, outer ones first; the tree itself is the empty path."""
    folders = {""}
    paths = [file.path for file in (*manifest.files, *manifest.bytecode)]
    paths += venv.paths
    paths += [bytecode_path(path, "") for path in (*venv.files, *sources) if path.endswith(".py")]
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(folders)


def _make_folders(folders: list[str], workers: WorkerPool) -> None:
    """Make the shallow folders first, and then those of each package by one worker."""
    deep = [folder for folder in folders if folder.count("/") >= _SHALLOW]
    shallow = [folder for folder in folders if folder and folder.count("/") < _SHALLOW]
    workers.work("folders", [shallow])
    packages = itertools.groupby(deep, key=lambda folder: folder.split("/")[:_SHALLOW])
    workers.work("folders", (list(group) for _, group in packages))


def _link(
    manifest: Manifest, workers: WorkerPool, hash_times: Mapping[str, int], advance: Advance
) -> None:
    items: dict[str, Item] = {}
    for file in (*manifest.files, *manifest.bytecode):
        if file.kind != FileKind.LINK:
            key = file.key
            item = items.setdefault(key, (key, file.size, [], [], hash_times.get(key, 0)))
            (item[3] if file.kind == FileKind.SCRIPT else item[2]).append(file.path)
    total = sum(item[1] for item in items.values())
    done = 0
    damaged: list[str] = []

    def note(batch: list[Item], failed: list[str]) -> None:
        nonlocal done
        done += sum(item[1] for item in batch)
        damaged.extend(failed)
        advance("linking", done, total)

    work = batches([*items.values()], lambda item: item[1], large=_LARGE, most=_BATCH_FILES)
    workers.work("link", work, note)
    if damaged:
        raise DamagedObjects(damaged)


def _utf8(path: str) -> str:
    """A path for the workers, which are in UTF-8 mode."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")
