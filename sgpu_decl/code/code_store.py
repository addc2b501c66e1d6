"""The store of pinned code: every file once, by content, shared by all projects of a user.

objects/ab/cdef…      the content of one file, named by its SHA-256
manifests/<hex>.json  the entries of one snapshot, named by its digest

All else is as in every `content.store.content_store`. Objects and packs are not synced to the disk:
that would take most of the time of `put`. One that a power cut left short is noticed by its size
before the next launch, and is stored again.
"""

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.code.snapshot import Snapshot, SnapshotEntry
from sgpu_decl.content.store.content_store import ContentStore
from sgpu_decl.content.store.file_copies import SMALL, copy_into, read_small, write_new
from sgpu_decl.content.store.object_packs import Read
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.jsonable import digest as digest_of
from sgpu_decl.model.step_progress import Progress, Quiet

PACKED = 256  # small files that are stored together; fewer become objects


class CodeStore(ContentStore[Snapshot]):
    """Keeps snapshots of code."""

    cut = 2

    def put(self, snapshot: Snapshot, progress: Progress | None = None) -> None:
        """Store the missing files of a snapshot. Idempotent. `progress` is told `storing`, in
        bytes.

        Raises:
            SgpuError: a file changed since the snapshot was taken, or the disk is full.
        """
        with self._writing(progress):
            self._put_files(snapshot.root, self._missing(snapshot), progress or Quiet())
            entries = canonical([entry.to_json() for entry in snapshot.entries])
            stored = replace(snapshot, root=self._root, exclusions=())
            data = entries.encode("utf-8", "surrogatepass")
            self._register(snapshot.digest, data, stored, durable=True)

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
                content = Path(self.object_path(entry.digest)).read_bytes()
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
        objects = set(self.object_names())
        return [entry for entry in entries if entry.digest not in objects or not self._has(entry)]

    def _parsed(self, data: bytes, digest: str) -> Snapshot | None:
        try:
            text = data.decode("utf-8", "surrogatepass")
        except ValueError:
            return None
        if digest_of(text) != digest:
            return None
        entries = tuple(SnapshotEntry(*fields) for fields in json.loads(text))
        return Snapshot(root=self._root, digest=digest, entries=entries)

    def _keys_of(self, manifest: Snapshot) -> Iterator[str]:
        return (entry.digest for entry in manifest.entries)

    def _is_complete(self, digest: str) -> bool:
        return self.lacking(digest) == ()

    def _leftovers(self, live: Collection[str], now: float) -> Iterator[Path]:  # noqa: ARG002
        return self._root.glob(".put-*")

    def _has(self, entry: SnapshotEntry) -> bool:
        """A file that a power cut truncated does not count."""
        try:
            return os.stat(self.object_path(entry.digest)).st_size == entry.size
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
            os.rename(temporary, self.object_path(entry.digest))
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
        source = self.object_path(entry.digest)
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
            self._path("manifests", code_digest).unlink()
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
