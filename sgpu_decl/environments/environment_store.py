"""The store of environments: every file once, by content, shared by all projects of a user.

objects/ab/<hex>[.x]   the content of one file, named by its SHA-256; executable with `.x`
manifests/<hex>.json   one environment, after a line with the SHA-256 of the text
origins/<hex>.json     the interpreter that it was captured from, and the one that its tree leads to
built/<hex>.json       the environment that a lock became
trees/<hex>/           one environment as ranks see it: hard links to objects
incoming/              objects that are being written

All else is as in every `content.store.content_store`. Nothing is synced to the disk, which would
cost more than all other steps. An object is verified when a tree is made from it, a manifest when
it is read, and files that a power cut damaged are stored again.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.content.hydration import DamagedObjects, InterpreterMismatch, hydrate
from sgpu_decl.content.manifest import BadManifest, File, FileKind, Manifest
from sgpu_decl.content.store.content_store import YOUNG_SECONDS, ContentStore
from sgpu_decl.content.tree_files import RECORD, altered, clear, whole
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.environments.captured.capture import Captured, capture
from sgpu_decl.environments.captured.file_readers import Destination
from sgpu_decl.environments.ingest import copy_missing, link_missing
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.step_progress import Progress


class EnvironmentStore(ContentStore[Manifest]):
    """Keeps environments, and their trees."""

    folders = (*ContentStore.folders, "origins", "built", "trees", "incoming")
    cut = 0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.trees = root / "trees"
        self._into = Destination(self.objects, root / "incoming")
        self._hashed: dict[str, int] = {}  # when this process stored objects, in ns

    def missing(self, manifest: Manifest) -> list[File]:
        """The files and bytecode whose objects are missing, one for each object."""
        files = {
            file.key: file
            for file in (*manifest.bytecode, *manifest.files)
            if file.kind != FileKind.LINK
        }
        for key in self.object_names():
            files.pop(key, None)
        return list(files.values())

    def capture(
        self,
        interpreter: str,
        progress: Progress,
        *,
        program: str | None = None,
        cache: Path | None = None,
    ) -> tuple[Captured | None, tuple[Diagnostic, ...]]:
        """Capture the environment of an interpreter and store it. Files that have to be read are
        copied in the same pass. See `capture.capture`.

        Raises:
            SgpuError: as `put`.
        """
        with self._writing(progress):
            before = set(self.object_names())
            captured, findings = capture(
                interpreter, program=program, progress=progress, cache=cache, into=self._into
            )
            now = time.time_ns()
            self._hashed.update((key, now) for key in self.object_names() if key not in before)
        if captured is not None and not has_errors(findings):
            self.put(captured, progress)
        return captured, findings

    def put(self, captured: Captured, progress: Progress, *, by_link: bool = False) -> None:
        """Store the missing files of an environment. Idempotent.

        A complete stored environment keeps its bytecode.

        Args:
            by_link: nobody else uses these files, and they are about to be deleted: on the same
                file system they become objects themselves.

        Raises:
            SgpuError: a file changed since it was captured, or the disk is full. No manifest is
                registered then; copied objects stay for the next try.
        """
        with self._writing(progress):
            missing = self.missing(captured.manifest)
            if by_link:
                missing = link_missing(captured, missing, self._into)
            stale = copy_missing(captured, missing, self._into, progress)
            self._hashed.update(dict.fromkeys((file.key for file in missing), time.time_ns()))
            manifest = captured.manifest
            if stale:  # recompiled since the capture; bytecode is no part of the digest
                remaining = (file for file in manifest.bytecode if file.key not in stale)
                manifest = manifest._replace(bytecode=tuple(remaining))
            origin = canonical({"interpreter": captured.interpreter, "base": captured.base})
            self._write("origins", captured.digest, origin.encode())
            self._register_new(manifest, captured.digest)

    def build_of(self, lock_digest: str) -> str | None:
        """The digest of the manifest that was built from a lock."""
        manifest = self._record("built", lock_digest).get("manifest")
        return manifest if isinstance(manifest, str) else None

    def _build_at(self, lock_digest: str) -> str | None:
        """The same. Raises OSError: it is there, and cannot be read."""
        with contextlib.suppress(FileNotFoundError):
            self._path("built", lock_digest).read_bytes()
        return self.build_of(lock_digest)

    def record_build(
        self, lock_digest: str, manifest_digest: str, progress: Progress | None = None
    ) -> None:
        """Record the manifest that was built from a lock."""
        with self._writing(progress):
            text = canonical({"manifest": manifest_digest})
            self._write("built", lock_digest, text.encode())

    def touch(self, digest: str, progress: Progress | None = None) -> bool:
        """As every store. `digest` may be that of a built lock, too."""
        return super().touch(self.build_of(digest) or digest, progress)

    def _is_complete(self, digest: str) -> bool:
        if self.tree(digest) is not None:
            return True
        manifest = self.manifest(digest)
        return manifest is not None and not self.missing(manifest)

    def need_manifest(self, digest: str) -> Manifest:
        """The manifest of an environment. Raises SgpuError: it is not here."""
        manifest = self.manifest(digest)
        if manifest is None:
            raise _missing(digest)
        return manifest

    def tree(self, digest: str) -> Path | None:
        """The tree of an environment if it is complete; checks its folders only."""
        path = self.trees / digest.removeprefix("sha256:")
        return path if whole(os.fspath(path)) else None

    def hydrate(self, digest: str, progress: Progress) -> Path:
        """Make the tree of an environment, unless it exists.

        A damaged object is copied again from the captured interpreter, if that still has the same
        bytes.

        Args:
            digest: that of an environment, or of a built lock.

        Raises:
            SgpuError: the environment is missing, damaged, for another Python, or cannot be
                written.
        """
        digest = self.build_of(digest) or digest
        tree = self.tree(digest)
        if tree is not None:
            return tree
        try:
            return self._hydrate(digest, progress)
        except DamagedObjects as damaged:
            self._refetch(digest, damaged.objects, progress)
        try:
            return self._hydrate(digest, progress)
        except DamagedObjects as damaged:
            raise _damaged(digest, damaged.objects) from None

    def _hydrate(self, digest: str, progress: Progress) -> Path:
        manifest = self.manifest(digest)
        base = self._record("origins", digest).get("base")
        if manifest is None or not isinstance(base, str):
            raise _missing(digest)
        tree = self.trees / digest.removeprefix("sha256:")
        try:
            with self._writing(progress):
                hydrate(
                    manifest,
                    os.fspath(self.objects),
                    os.fspath(tree),
                    base,
                    hash_times=self._hashed,
                    advance=progress.advance,
                )
        except (InterpreterMismatch, BadManifest) as error:
            raise SgpuError(
                f"{error}",
                hint="plan and apply again with the current Python",
                code="environment_misfit",
            ) from error
        return tree

    def _refetch(self, digest: str, keys: Iterable[str], progress: Progress) -> None:
        """Remove damaged objects, and copy them again from the captured interpreter."""
        missing = set(keys)
        with self._writing(progress):
            for key in missing:
                self._delete(key)
            interpreter = self._record("origins", digest).get("interpreter")
            captured = None
            if isinstance(interpreter, str) and os.path.exists(interpreter):
                captured, _ = capture(interpreter, progress=progress)
            if captured is None:
                raise _damaged(digest, missing)
            files = (*captured.manifest.bytecode, *captured.manifest.files)
            present = list({file.key: file for file in files if file.key in missing}.values())
            if len(present) < len(missing):
                raise _damaged(digest, missing)
            copy_missing(captured, present, self._into, progress)

    def examine(self, digest: str) -> tuple[str, ...]:
        """Check every file of a tree; returns the paths that were written to since it was made.

        Such a tree is not used again, and its altered objects are deleted: they are copied again
        when they are needed.
        """
        digest = self.build_of(digest) or digest
        tree, manifest = self.tree(digest), self.manifest(digest)
        if tree is None or manifest is None:
            return ()
        paths = altered(os.fspath(tree), manifest)
        if paths:
            with self._writing():
                keys = {file.path: file.key for file in (*manifest.files, *manifest.bytecode)}
                for path in paths:
                    if path in keys and keys[path] != path:
                        self._delete(keys[path])
                (tree / RECORD).unlink(missing_ok=True)
        return tuple(paths)

    def _garbage(self, referred: Collection[str], now: float) -> tuple[list[str], int]:
        built = {digest for lock in referred if (digest := self._build_at(lock))}
        return super()._garbage({*referred, *built}, now)

    def _keys_of(self, manifest: Manifest) -> Iterator[str]:
        return (file.key for file in (*manifest.files, *manifest.bytecode))

    def _leftovers(self, live: Collection[str], now: float) -> Iterator[Path]:
        before = now - YOUNG_SECONDS
        for path in self._root.glob("origins/*.json"):
            if path.stem not in live:
                yield path
        for path in self._root.glob("built/*.json"):
            if (self._build_at(path.stem) or "")[7:] not in live and path.stat().st_mtime <= before:
                yield path
        for path in self.trees.glob("[0-9a-f]*"):
            if path.name not in live and path.lstat().st_ctime <= before:
                yield path
        yield from (self._root / "incoming").iterdir()
        yield from self._root.glob("bytecode/*/*")  # of older versions: trees have their own

    def _sweep(self, paths: Iterable[str]) -> None:
        super()._sweep(paths)
        clear(os.fspath(self.trees))

    def _prepare(self) -> None:
        super()._prepare()
        if not (self.objects / "ff").is_dir():
            for number in range(256):
                private_folder(self.objects / f"{number:02x}")

    def _register_new(self, manifest: Manifest, digest: str) -> None:
        """Write a manifest, unless a complete one with other bytecode exists: a tree may have been
        made from that, and is compared with it."""
        text = manifest.to_bytes()
        data = _seal(text) + b"\n" + text
        path = self._path("manifests", digest)
        if path.is_file() and path.read_bytes() != data:
            present = self.manifest(digest)
            if present is not None and not self.missing(present):
                os.utime(path)
                return
        self._register(digest, data, manifest)

    def _parsed(self, data: bytes, digest: str) -> Manifest | None:
        seal, _, text = data.partition(b"\n")
        if seal != _seal(text):  # the digest covers neither packages nor bytecode
            return None
        try:
            return Manifest.from_bytes(text, digest)
        except BadManifest:
            return None

    def _delete(self, key: str) -> None:
        Path(self.object_path(key)).unlink(missing_ok=True)

    def _record(self, kind: str, digest: str) -> dict[str, object]:
        try:
            record = json.loads(self._path(kind, digest).read_bytes())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _write(self, kind: str, digest: str, data: bytes) -> None:
        write_atomic(self._path(kind, digest), data, durable=False)


def _seal(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _missing(digest: str) -> SgpuError:
    return SgpuError(
        f"the environment {digest[:19]} is not in the store",
        hint="plan and apply again on this machine",
        code="environment_missing",
    )


def _damaged(digest: str, keys: Iterable[str]) -> SgpuError:
    few = ", ".join(f"`{key[:12]}`" for key in sorted(keys)[:3])
    return SgpuError(
        f"the store no longer holds all of the environment {digest[:19]}: {few} damaged or missing",
        hint="plan and apply again: the environment is stored again",
        code="environment_damaged",
    )
