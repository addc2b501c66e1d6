"""Makes the tree of an environment from its manifest and its objects.

    looking ─▶ folders ─▶ linking, each object verified ─▶ compiling ─▶ closing ─▶ renamed
       └ another Python, or none: nothing is made

A tree is made beside its place. The first process that has one renames it there, and others use
that one. Each process first deletes what killed processes left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from types import MappingProxyType

from sgpu_decl.agent.environment.bytecode_cache import bytecode_path, cached, uncompiled
from sgpu_decl.agent.environment.manifest import FileKind
from sgpu_decl.agent.environment.python_match import mismatch
from sgpu_decl.agent.environment.tree_files import (
    RECORD,
    altered,
    as_bytes,
    clear,
    install,
    making,
    record_of,
    remove,
    whole,
)
from sgpu_decl.agent.environment.tree_links import write_file, write_link
from sgpu_decl.agent.environment.venv_files import furnish
from sgpu_decl.agent.environment.workers import Crew

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sgpu_decl.agent.environment.bytecode_cache import Source
    from sgpu_decl.agent.environment.manifest import Manifest
    from sgpu_decl.agent.environment.tree_links import Item
    from sgpu_decl.agent.environment.venv_files import Furnishing

    Advance = Callable[[str, int, int], None]

__all__ = ["Damaged", "Mismatch", "altered", "hydrate", "whole"]

_BATCH_FILES = 400
_BATCH_BYTES = 16 << 20
_BATCH_SOURCES = 40
_LARGE = 4 << 20
_SHALLOW = 4  # names in lib/python3.11/site-packages/package


class Damaged(Exception):
    """Objects are missing, or their content does not fit their names; `objects` are the names."""

    def __init__(self, objects: Iterable[str]) -> None:
        self.objects = sorted(objects)
        few = ", ".join(self.objects[:3]) + (", …" if len(self.objects) > 3 else "")
        super().__init__(f"objects are missing or damaged ({len(self.objects)}): {few}")


class Mismatch(Exception):
    """The environment was made for another interpreter."""


def _quiet(phase: str, done: int, total: int) -> None:
    pass


def hydrate(
    manifest: Manifest,
    objects: str,
    tree: str,
    python: str,
    *,
    bytecode: str | None = None,
    hashed_ns: Mapping[str, int] = MappingProxyType({}),
    advance: Advance = _quiet,
) -> None:
    """Make the tree of an environment, unless there is a whole one already.

    Args:
        manifest: its content.
        objects: the folder of objects, `ab/<sha256>[.x]`.
        tree: its place. Scripts name it, so it cannot be moved.
        python: the interpreter of the ranks, or the base of it.
        bytecode: the folder of compiled bytecode; `bytecode` beside the objects if None.
        hashed_ns: when objects were hashed while they were written, in ns since the epoch, by name.
            An object that has not changed since is not read again.
        advance: called with a phase, the work done and the total: bytes of `linking`, sources of
            `compiling`. There is one call at a time, from any thread.

    Raises:
        Damaged: objects are missing or damaged; nothing was made.
        Mismatch: the environment does not work with that interpreter; nothing was made.
        BadManifest: it has a file that only the tree itself may have.
        OSError: the interpreter does not start, or the disk is full or broken.
    """
    tree, objects = os.path.abspath(tree), os.path.abspath(objects)
    if whole(tree):
        return
    with contextlib.closing(Crew(python)) as crew:
        problem = mismatch(manifest.python, crew.python)
        if problem:
            raise Mismatch(f"this environment cannot be used here: {problem}")
        furnishing = furnish(manifest, crew.base)
        beside = os.path.join(os.path.dirname(objects), "bytecode")
        cache = os.path.join(os.path.abspath(bytecode or beside), crew.tag)
        os.makedirs(cache, mode=0o700, exist_ok=True)
        parent = os.path.dirname(tree)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        clear(parent)
        place, lock = making(parent)
        try:
            os.mkdir(place, 0o700)
            crew.begin(
                folder=_utf8(place),
                objects=_utf8(objects),
                bytecode=_utf8(cache),
                interpreter=_utf8(tree + "/bin/python"),
                tag=crew.tag,
            )
            _make(manifest, furnishing, os.fsencode(place) + b"/", cache, crew, hashed_ns, advance)
            install(place, tree)
        finally:
            remove(place)
            os.close(lock)


def _make(
    manifest: Manifest,
    furnishing: Furnishing,
    place: bytes,
    cache: str,
    crew: Crew,
    hashed_ns: Mapping[str, int],
    advance: Advance,
) -> None:
    sources = uncompiled(manifest, furnishing, crew.tag)
    folders = _folders(manifest, furnishing, sources.values())
    _make_folders(folders, crew)
    _link(manifest, crew, hashed_ns, advance)
    for file in manifest.files:
        if file.kind == FileKind.LINK:
            write_link(place + as_bytes(file.path), as_bytes(file.content))
    for path, content in furnishing.files.items():
        write_file(place + as_bytes(path), content, 0o444)
    for path, content in furnishing.programs.items():
        write_file(place + as_bytes(path), content, 0o555)
    for path, target in furnishing.links.items():
        write_link(place + as_bytes(path), os.fsencode(target))
    _compile(sources, cached(cache), crew, advance)
    own = {**furnishing.files, **furnishing.programs}
    sizes = {path: len(content) for path, content in own.items()}
    write_file(place + as_bytes(RECORD), record_of(manifest, folders, sizes), 0o444)
    half = len(folders) // 2
    crew.work("finish", [folders[:half], folders[half:]])


def _folders(manifest: Manifest, furnishing: Furnishing, sources: Iterable[list[str]]) -> list[str]:
    """Return all folders of the tree, parents first; the tree itself is the empty path."""
    folders = {""}
    paths = [file.path for file in (*manifest.files, *manifest.bytecode)]
    paths += furnishing.paths
    paths += [bytecode_path(path, "") for group in sources for path in group]
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(folders)


def _make_folders(folders: list[str], crew: Crew) -> None:
    """Make the shallow folders first, then those of each package, by one worker each."""
    deep = [folder for folder in folders if folder.count("/") >= _SHALLOW]
    shallow = [folder for folder in folders if folder and folder.count("/") < _SHALLOW]
    crew.work("folders", [shallow])
    packages = itertools.groupby(deep, key=lambda folder: folder.split("/")[:_SHALLOW])
    crew.work("folders", (list(group) for _, group in packages))


def _link(manifest: Manifest, crew: Crew, hashed_ns: Mapping[str, int], advance: Advance) -> None:
    items: dict[str, Item] = {}
    for file in (*manifest.files, *manifest.bytecode):
        if file.kind != FileKind.LINK:
            key = file.key
            item = items.setdefault(key, (key, file.size, [], [], hashed_ns.get(key, 0)))
            (item[3] if file.kind == FileKind.SCRIPT else item[2]).append(file.path)
    total = sum(item[1] for item in items.values())
    done = 0
    damaged: list[str] = []

    def note(batch: list[Item], failed: list[str]) -> None:
        nonlocal done
        done += sum(item[1] for item in batch)
        damaged.extend(failed)
        advance("linking", done, total)

    crew.work("link", _batches(items.values()), note)
    if damaged:
        raise Damaged(damaged)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Large files come first and alone, so that the workers end at about the same time."""
    small = []
    for item in sorted(items, key=lambda one: -one[1] if one[1] >= _LARGE else 0):
        if item[1] >= _LARGE:
            yield [item]
        else:
            small.append(item)
    batch: list[Item] = []
    size = 0
    for item in small:
        batch.append(item)
        size += item[1]
        if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compile(
    sources: Mapping[str, list[str]], names: Mapping[str, str], crew: Crew, advance: Advance
) -> None:
    work: list[Source] = [
        (digest, paths, names.get(digest, "")) for digest, paths in sources.items()
    ]
    done = 0

    def note(batch: list[Source], _failed: list[str]) -> None:
        nonlocal done
        done += len(batch)
        advance("compiling", done, len(work))

    batches = (work[at : at + _BATCH_SOURCES] for at in range(0, len(work), _BATCH_SOURCES))
    crew.work("compile", batches, note)


def _utf8(path: str) -> str:
    """Return a path for the workers, which are in UTF-8 mode."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")
