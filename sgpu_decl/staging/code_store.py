"""The store of pinned code: every file once, by content, shared by all projects of a user.

objects/ab/cdef…      the content of one file, named by its SHA-256
packs/<hex>.pack      the contents of small files that were stored together, see `code_packs`
manifests/<hex>.json  the entries of one snapshot, named by its digest
roots/<hex>.json      which snapshots one state refers to, for garbage collection

Objects and packs are not synced to the disk: that would take most of the time of `put`. One that a
power cut left short is noticed by its size before the next launch, and is stored again.
"""

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Self

from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.staging.code_packs import CodePacks, Read
from sgpu_decl.staging.file_copies import SMALL, copy_into, read_small, write_new
from sgpu_decl.staging.shared_store import YOUNG_SECONDS, Garbage, SharedStore
from sgpu_decl.staging.snapshot import Snapshot, SnapshotEntry
from sgpu_decl.system_errors import FULL, advice, error_text

PACKED = 256  # small files that are stored together; fewer become objects


def default_root() -> Path:
    """The store of this user."""
    import platformdirs

    return Path(platformdirs.user_data_path("sgpu")) / "store"


class CodeStore(SharedStore):
    """Keeps snapshots of code."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._objects = os.fspath(root / "objects")
        self._manifests = root / "manifests"
        self._packs = CodePacks(root / "packs")
        self._last: Snapshot | None = None  # the manifest that was read or written last

    def put(self, snapshot: Snapshot, progress: Progress | None = None) -> None:
        """Store the missing files of a snapshot. Idempotent. `progress` is told `storing`, in
        bytes.

        Raises:
            SgpuError: a file changed since the snapshot was taken, or the disk is full.
        """
        try:
            self._prepare()
            with self._references.many():
                self._put_files(snapshot.root, self._missing(snapshot), progress or Quiet())
                entries = canonical([entry.to_json() for entry in snapshot.entries])
                text = entries.encode("utf-8", "surrogatepass")
                write_atomic(self._manifest_path(snapshot.digest), text)
                self._last = replace(snapshot, root=self._root, exclusions=())
        except OSError as error:
            raise SgpuError(
                f"the code cannot be put into the store `{self._root}`: {error_text(error)}",
                hint=advice(error),
                code="store_full" if error.errno in FULL else "store_unwritable",
            ) from error

    def manifest(self, code_digest: str) -> Snapshot | None:
        """The snapshot with this digest, or `None` if it is missing or damaged."""
        last = self._last
        if last is not None and last.digest == code_digest:
            return last if self._manifest_path(code_digest).exists() else None
        try:
            raw = self._manifest_path(code_digest).read_bytes()
        except OSError:
            return None
        snapshot = self._snapshot(raw, code_digest)
        self._last = snapshot or last
        return snapshot

    def _snapshot(self, raw: bytes, code_digest: str) -> Snapshot | None:
        """What a manifest says; None if it is damaged."""
        try:
            text = raw.decode("utf-8", "surrogatepass")
        except ValueError:
            return None
        if digest(text) != code_digest:
            return None
        entries = tuple(SnapshotEntry(*fields) for fields in json.loads(text))
        return Snapshot(root=self._root, digest=code_digest, entries=entries)

    def require(self, code_digest: str) -> Snapshot:
        """The snapshot with this digest.

        Raises:
            SgpuError: it is missing or damaged.
        """
        snapshot = self.manifest(code_digest)
        if snapshot is None:
            raise SgpuError(
                f"the code {code_digest[:19]} is not in the store",
                hint="plan again on this machine",
                code="code_missing",
            )
        return snapshot

    def content(self, entry: SnapshotEntry) -> bytes | None:
        """The bytes of a file of a snapshot; `None` if they are missing or damaged."""
        try:
            with self._packs.reader() as read:
                content = read(entry.digest)
            if content is None:
                content = Path(self._object_path(entry.digest)).read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == entry.digest else None

    def materialize(
        self, code_digest: str, destination: Path, progress: Progress | None = None
    ) -> None:
        """Make a writable copy of a snapshot at `destination`, a new folder. `progress` is told
        `staging`, in bytes.

        Raises:
            SgpuError: the snapshot is missing, or a file of the store is damaged.
            OSError: the copy cannot be written.
        """
        snapshot = self.require(code_digest)
        private_folder(destination.parent)
        destination.mkdir(mode=0o700)
        top = os.fspath(destination)
        steps = _FileSteps("staging", snapshot.entries, progress)
        with self._packs.reader() as read, _NewFolders(top) as folders:
            for entry in snapshot.entries:
                folder = folders.open(entry.path.rpartition("/")[0])
                path = f"{top}/{entry.path}"
                if entry.target is not None:
                    os.symlink(entry.target, path)
                else:
                    self._copy_out(entry, path, folder, code_digest, read, steps)
                steps.end(entry)

    def touch(self, code_digest: str) -> bool:
        """Keep a snapshot young, so that the next collection leaves it; false if it is missing
        or lacks a file."""
        try:
            with self._references.many():
                os.utime(self._manifest_path(code_digest))
        except OSError:
            return False
        return self.lacking(code_digest) == ()

    def unreferenced(self) -> int:
        """How many snapshots no state refers to; the next collection deletes the older ones."""
        keep = self._references.referred()
        return sum(f"sha256:{path.stem}" not in keep for path in self._manifests.glob("*.json"))

    def lacking(self, code_digest: str) -> tuple[str, ...] | None:
        """The paths of a snapshot whose contents are missing; `None` if the snapshot is."""
        code = self.manifest(code_digest)
        if code is None:
            return None
        return tuple(entry.path for entry in self._missing(code))

    def _missing(self, code: Snapshot) -> list[SnapshotEntry]:
        packed = self._packs.digests()
        entries = [
            entry for entry in code.entries if entry.target is None and entry.digest not in packed
        ]
        if len(entries) < PACKED:
            return [entry for entry in entries if not self._has(entry)]
        objects = {
            os.path.basename(folder) + name
            for folder in glob(f"{self._objects}/??")
            for name in os.listdir(folder)
        }
        return [entry for entry in entries if entry.digest not in objects or not self._has(entry)]

    def _garbage(self, referred: set[str], now: float) -> Garbage:
        needed: set[str] = set()
        files: list[str] = []
        for path in self._manifests.glob("*.json"):
            code_digest = f"sha256:{path.stem}"
            if code_digest in referred or now - path.stat().st_mtime < YOUNG_SECONDS:
                code = self._snapshot(path.read_bytes(), code_digest)
                needed |= {entry.digest for entry in code.entries} if code else set()
            else:
                files.append(os.fspath(path))
        size = 0
        for path in (self._root / "objects").glob("*/*"):
            facts = path.stat()
            if path.parent.name + path.name in needed or now - facts.st_mtime < YOUNG_SECONDS:
                continue
            files.append(os.fspath(path))
            size += facts.st_size
        for path, packed in self._packs.unneeded(needed, now - YOUNG_SECONDS):
            files.append(os.fspath(path))
            size += packed
        files += map(os.fspath, self._root.glob(".put-*"))  # of a killed `put`: none runs now
        return Garbage(files=tuple(files), size=size)

    def _prepare(self) -> None:
        for name in ("", "objects", "manifests"):
            private_folder(self._root / name)

    def _manifest_path(self, code_digest: str) -> Path:
        return self._manifests / f"{code_digest.removeprefix('sha256:')}.json"

    def _object_path(self, content: str) -> str:
        return f"{self._objects}/{content[:2]}/{content[2:]}"

    def _has(self, entry: SnapshotEntry) -> bool:
        """A file that a power cut truncated does not count."""
        try:
            return os.stat(self._object_path(entry.digest)).st_size == entry.size
        except FileNotFoundError:
            return False

    def _put_files(self, root: Path, missing: Sequence[SnapshotEntry], progress: Progress) -> None:
        temporary = os.fspath(self._root / f".put-{uuid.uuid4().hex}")
        files = list({entry.digest: entry for entry in missing}.values())
        steps = _FileSteps("storing", files, progress)
        small = [entry for entry in files if entry.size < SMALL]
        if len(small) >= PACKED:
            contents = self._contents(root, small, steps)
            self._packs.write([(e.digest, e.size) for e in small], contents, temporary)
            files = [entry for entry in files if entry.size >= SMALL]
        for folder in {entry.digest[:2] for entry in files}:
            Path(self._objects, folder).mkdir(mode=0o700, exist_ok=True)
        for entry in files:
            self._put_file(root, entry, temporary, steps)
            steps.end(entry)

    def _contents(
        self, root: Path, entries: Sequence[SnapshotEntry], steps: "_FileSteps"
    ) -> Iterator[bytes]:
        for entry in entries:
            content = read_small(f"{root}/{entry.path}", entry.size)
            if hashlib.sha256(content).hexdigest() != entry.digest:
                raise _changed(entry)
            yield content
            steps.end(entry)

    def _put_file(
        self, root: Path, entry: SnapshotEntry, temporary: str, steps: "_FileSteps"
    ) -> None:
        try:
            content = copy_into(f"{root}/{entry.path}", temporary, 0o600, steps.within)
            if content != entry.digest:
                raise _changed(entry)
            os.rename(temporary, self._object_path(entry.digest))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def _copy_out(
        self,
        entry: SnapshotEntry,
        path: str,
        folder: int,
        code_digest: str,
        read: Read,
        steps: "_FileSteps",
    ) -> None:
        mode = 0o700 if entry.executable else 0o600
        packed = read(entry.digest)
        if packed is not None:
            if hashlib.sha256(packed).hexdigest() != entry.digest:
                self._packs.drop(entry.digest)
                raise self._damaged(entry, code_digest)
            write_new(path, packed, mode, folder)
            return
        source = self._object_path(entry.digest)
        try:
            content = copy_into(source, path, mode, steps.within)
        except FileNotFoundError:
            raise self._damaged(entry, code_digest) from None
        if content != entry.digest:
            with contextlib.suppress(OSError):
                os.unlink(source)
            raise self._damaged(entry, code_digest)

    def _damaged(self, entry: SnapshotEntry, code_digest: str) -> SgpuError:
        # Without its manifest the snapshot is missing, and the next `put` stores it again.
        with contextlib.suppress(OSError):
            self._manifest_path(code_digest).unlink()
        return SgpuError(
            f"the store no longer holds the planned content of `{entry.path}`",
            hint="plan again: it is stored again from your files",
            code="store_damaged",
        )


class _NewFolders:
    """Makes the folders below `top`, of which the last one is open."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._last: tuple[str, int] | None = None

    def open(self, folder: str) -> int:
        """A descriptor of a folder, until another one is opened. It is made if it is not there."""
        if self._last is not None:
            if self._last[0] == folder:
                return self._last[1]
            self._close()
        path = f"{self._top}/{folder}"
        private_folder(Path(path))
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._last = folder, handle
        return handle

    def _close(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()


class _FileSteps:
    """The progress of a step that handles files one after the other, in bytes."""

    def __init__(
        self, phase: str, entries: Sequence[SnapshotEntry], progress: Progress | None
    ) -> None:
        self._phase = phase
        self._progress = progress or Quiet()
        self._before, self._total = 0, sum(entry.size for entry in entries)

    def within(self, done: int) -> None:
        """So much of a file is done."""
        self._progress.advance(self._phase, self._before + done, self._total)

    def end(self, entry: SnapshotEntry) -> None:
        """A file is done."""
        self._before += entry.size
        self._progress.advance(self._phase, self._before, self._total)


def _changed(entry: SnapshotEntry) -> SgpuError:
    return SgpuError(
        f"`{entry.path}` changed while it was staged",
        hint="plan again",
        code="code_moving",
    )
