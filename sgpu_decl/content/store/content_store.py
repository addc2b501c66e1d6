"""The base of the stores of code and environments: every content once, shared by all projects of a
user; references to it; gc.

objects/ab/…           the content of one file, by its SHA-256
packs/<hex>.pack       the contents of small files that were stored together, see `object_packs`
manifests/<hex>.json   what lists objects, named by its digest
roots/, lock           see `references`
"""

import contextlib
import errno
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import delete_left, write_atomic
from sgpu_decl.content.store.object_packs import ObjectPacks
from sgpu_decl.content.store.references import References, json_files
from sgpu_decl.content.tree_files import FIXED_NS, discard
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.system_errors import FULL, advice, error_text

YOUNG_SECONDS = 3600.0
"""An object of this age may still be on its way into a state: it is not deleted."""

_Manifest = TypeVar("_Manifest")


def default_root() -> Path:
    """The store of this user."""
    import platformdirs

    return Path(platformdirs.user_data_path("sgpu")) / "store"


class ContentStore(ABC, Generic[_Manifest]):
    """Safe under concurrent writers, and under their deaths: every file enters under a temporary
    name and is renamed, and a manifest is written after its objects.

    Attributes:
        folders: those below the root that are made before something is written.
        cut: how many characters the name of an object leaves out, which its folder has.
    """

    folders: ClassVar[tuple[str, ...]] = ("", "objects", "manifests")
    cut: ClassVar[int]

    def __init__(self, root: Path) -> None:
        self._root = root
        self.objects = root / "objects"
        self._objects = os.fspath(self.objects)
        self._packs = ObjectPacks(root / "packs")
        self.references = References(root)
        self._last: tuple[tuple[int, ...], _Manifest | None] | None = None

    def manifest(self, digest: str) -> _Manifest | None:
        """What has this digest, or `None` if it is missing or damaged."""
        try:
            return self._manifest_at(digest)
        except OSError:
            return None

    def touch(self, digest: str, progress: Progress | None = None) -> bool:
        """Keep something young, so that the next collection leaves it; false if it is missing or
        incomplete. `progress` is told while a collection goes on, as by all that write."""
        path = self._path("manifests", digest)
        try:
            with self.references.many(progress or Quiet()):
                before, last = _version(path), self._last
                os.utime(path)
                if last is not None and last[0] == before:
                    self._last = _version(path), last[1]
        except OSError:
            return False
        return self._is_complete(digest)

    def refer(self, owner: Owner, digests: Collection[str]) -> None:
        """Record that `owner` refers to these digests; replaces its earlier record.

        Raises:
            SgpuError: the record cannot be written.
        """
        try:
            self._prepare()
            self.references.refer(owner, digests)
        except OSError as error:
            raise SgpuError(
                f"the store `{self._root}` cannot record what this project needs of it: "
                f"{error_text(error)}",
                hint=advice(error),
                code="store_full" if error.errno in FULL else "store_unwritable",
            ) from error

    def unreferenced(self) -> int:
        """How many manifests no state refers to; the next collection deletes the older ones."""
        keep = self.references.referred()
        return sum(digest not in keep for digest in self.digests())

    def digests(self, start: str = "") -> list[str]:
        """The digests of all manifests that begin with this hex text, sorted."""
        try:
            stems = sorted(path.stem for path in self._manifests())
        except OSError:
            return []
        return [f"sha256:{stem}" for stem in stems if stem.startswith(start)]

    def object_names(self) -> Iterator[str]:
        """The names of all objects that are files of their own."""
        with contextlib.suppress(FileNotFoundError):
            for folder in os.listdir(self._objects):
                for name in os.listdir(f"{self._objects}/{folder}"):
                    yield folder[: self.cut] + name

    def object_path(self, key: str) -> str:
        """Where the object of that name lies, if it is a file of its own."""
        return f"{self._objects}/{key[:2]}/{key[self.cut :]}"

    def collect(
        self,
        ask: Callable[[Owner], Presence],
        *,
        now: float | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete what no owner refers to and is not young; returns the bytes that were freed.

        Args:
            ask: asks the store of a state whether that is there; see `content.store.references`.
            now: seconds since the epoch; the current time if left out.
            dry_run: delete nothing, and return what would be freed.

        Raises:
            SgpuError: a reference or a manifest cannot be read, or nothing can be deleted.
        """
        now = now or time.time()
        try:
            if not self._root.is_dir():
                return 0
            self._prepare()
            with self.references.alone():
                gone = self.references.gone(ask, now=now)
                paths, size = self._garbage(self.references.referred(without=gone), now)
                if not dry_run:
                    for record in gone:
                        record.unlink(missing_ok=True)
                    self._sweep(paths)
                return size
        except OSError as error:
            raise store_error(self._root, error) from error

    @abstractmethod
    def _parsed(self, data: bytes, digest: str) -> _Manifest | None:
        """What a manifest says; None if it is damaged."""

    @abstractmethod
    def _keys_of(self, manifest: _Manifest) -> Iterable[str]:
        """The names of the objects that it lists."""

    @abstractmethod
    def _is_complete(self, digest: str) -> bool:
        """Whether nothing is missing that it lists."""

    @abstractmethod
    def _leftovers(self, live: Collection[str], now: float) -> Iterator[Path]:
        """What is deleted beside manifests and contents: files and trees that belong to other
        manifests than these, by their hex, and what killed writers left. Nobody puts meanwhile."""

    @contextlib.contextmanager
    def _writing(self, progress: Progress | None = None) -> Iterator[None]:
        """Put something. Raises SgpuError: the store cannot be written."""
        try:
            self._prepare()
            with self.references.many(progress or Quiet()):
                yield
        except OSError as error:
            raise store_error(self._root, error) from error

    def _prepare(self) -> None:
        """Make the folders of the store."""
        for name in self.folders:
            private_folder(self._root / name)

    def _manifest_at(self, digest: str) -> _Manifest | None:
        """As `manifest`. Raises OSError: it cannot be read."""
        path = self._path("manifests", digest)
        version = _version(path)
        last = self._last  # another thread may read another one
        if last is None or last[0] != version:
            last = self._last = version, self._parsed(path.read_bytes(), digest)
        return last[1]

    def _register(
        self, digest: str, data: bytes, manifest: _Manifest, *, durable: bool = False
    ) -> None:
        path = self._path("manifests", digest)
        write_atomic(path, data, durable=durable)
        self._last = _version(path), manifest  # parsing it again would take as long as making it

    def _garbage(self, referred: Collection[str], now: float) -> tuple[list[str], int]:
        """All but what these digests need, and what is young: files and trees in the order in which
        they are deleted, and the bytes of the content among them. Nobody puts meanwhile.

        Raises:
            OSError: a manifest is there and cannot be read: it is not known what it needs.
            SgpuError: the same, since it is damaged.
        """
        live: set[str] = set()
        paths: list[str] = []
        for path in self._manifests():
            young = now - path.stat().st_mtime < YOUNG_SECONDS
            if young or f"sha256:{path.stem}" in referred:
                live.add(path.stem)
            else:
                paths.append(os.fspath(path))
        needed = {key for name in live for key in self._needed(f"sha256:{name}")}
        contents = [
            *self._old_objects(needed, now - YOUNG_SECONDS),
            *self._packs.unneeded(needed, now - YOUNG_SECONDS),
        ]
        size = sum(size for _, size in contents)
        paths += (path for path, _ in contents)
        paths += map(os.fspath, self._leftovers(live, now))
        return paths, size

    def _needed(self, digest: str) -> Iterable[str]:
        manifest = self._manifest_at(digest)
        if manifest is None:
            raise SgpuError(
                f"`{self._path('manifests', digest)}` is damaged, so it is not known what it needs",
                hint="nothing of this store was deleted; delete that file: the next launch that "
                "needs it stores it again",
                code="store_damaged",
            )
        return self._keys_of(manifest)

    def _old_objects(self, needed: Collection[str], before: float) -> Iterator[tuple[str, int]]:
        """The objects that are not needed, with their bytes, if they were made before a time. Of
        one with the modification time of all files in trees, it is that of the inode."""
        for folder in _entries(self._objects):
            for entry in _entries(folder.path):
                if folder.name[: self.cut] + entry.name not in needed:
                    with contextlib.suppress(FileNotFoundError):
                        facts = entry.stat(follow_symlinks=False)
                        fixed = facts.st_mtime_ns == FIXED_NS
                        if (facts.st_ctime if fixed else facts.st_mtime) <= before:
                            yield entry.path, facts.st_size

    def _sweep(self, paths: Iterable[str]) -> None:
        """Delete it. Nobody puts meanwhile."""
        for path in paths:
            if os.path.isdir(path):
                discard(path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        for folder in self._root.glob("*/"):  # references are written without the lock
            delete_left(folder)

    def _manifests(self) -> list[Path]:
        return json_files(self._root / "manifests")

    def _path(self, kind: str, digest: str) -> Path:
        return self._root / kind / f"{digest.removeprefix('sha256:')}.json"


def store_error(store: Path, error: OSError) -> SgpuError:
    """The error of a store that cannot be written."""
    if error.errno in (*FULL, errno.EFBIG):
        return SgpuError(
            f"the disk of the store `{store}` is full: {error_text(error)}",
            hint="free space, for example with `sgpu gc`, and try again: copied files are kept",
            code="store_full",
        )
    return SgpuError(
        f"the store `{store}` cannot be used: {error_text(error)}",
        hint=advice(error),
        code="store_unwritable",
    )


def _version(path: Path) -> tuple[int, ...]:
    facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _entries(folder: str) -> "Iterator[os.DirEntry[str]]":
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        yield from entries
