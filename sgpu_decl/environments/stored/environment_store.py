"""The store of environments: every file once, by content, shared by all projects of a user.

objects/ab/<hex>[.x]   the content of one file, named by its SHA-256; executable with `.x`
manifests/<hex>.json   one environment, after a line with the SHA-256 of the text
origins/<hex>.json     the interpreter that it was captured from, and the one that its tree leads to
built/<hex>.json       the environment that a lock became
trees/<hex>/           one environment as it is given to ranks: hard links to objects
incoming/              objects that are being written
roots/, lock           see `staging.references`

Nothing is synced to the disk: an object is verified when a tree is made from it, a manifest when it
is read, and what a power cut left torn is taken in anew. Syncing would cost more than all else.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from sgpu_decl.agent.environment.manifest import BadManifest, File, FileKind, Manifest
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.environments.captured.capture import Captured, capture
from sgpu_decl.environments.captured.file_readers import Destination, store_refusal
from sgpu_decl.environments.stored.ingest import copy_missing, link_missing
from sgpu_decl.environments.stored.store_gc import sweep
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.staging.references import Reference, References, reference_error

__all__ = ["EnvironmentStore"]

_FOLDERS = ("", "objects", "manifests", "origins", "built", "trees", "bytecode", "incoming")


class EnvironmentStore:
    """Safe under concurrent writers, and under their deaths: every file enters under a temporary
    name and is renamed, and a manifest is written after all of its objects."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.objects = root / "objects"
        self.trees = root / "trees"
        self._references = References(root)
        self._hashed: dict[str, int] = {}  # when objects came in that this process saw come, in ns
        self._last: tuple[tuple[int, ...], Manifest | None] | None = None

    def manifest(self, digest: str) -> Manifest | None:
        """The environment with this digest, or `None` if it is not here (or damaged)."""
        path = self._path("manifests", digest)
        try:
            facts = path.stat()
            which = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if self._last is None or self._last[0] != which:
                self._last = (which, _unsealed(path.read_bytes(), digest))
            return self._last[1]
        except OSError:
            return None

    def digests(self, start: str) -> list[str]:
        """The environments that are here and whose hex digest begins so, sorted."""
        try:
            names = os.listdir(self._root / "manifests")
        except OSError:  # nothing was ever staged
            return []
        stems = sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))
        return [f"sha256:{stem}" for stem in stems if stem.startswith(start)]

    def missing(self, manifest: Manifest) -> list[File]:
        """The files and the bytecode whose objects are not here, one for each object."""
        wanted = {
            file.key: file
            for file in (*manifest.bytecode, *manifest.files)
            if file.kind != FileKind.LINK
        }
        for key in self.keys():
            wanted.pop(key, None)
        return list(wanted.values())

    def capture(
        self, interpreter: str, progress: Progress, *, cache: Path | None = None
    ) -> tuple[Captured | None, tuple[Diagnostic, ...]]:
        """Look at the environment of an interpreter and take it in: what has to be read is
        copied in the same pass. See `capture.capture`.

        Raises:
            SgpuError: as `put`.
        """
        with self._writing() as into:
            before = set(self.keys())
            captured, findings = capture(interpreter, progress=progress, cache=cache, into=into)
            now = time.time_ns()
            self._hashed.update((key, now) for key in self.keys() if key not in before)
        if captured is not None and not has_errors(findings):
            self.put(captured, progress)
        return captured, findings

    def put(self, captured: Captured, progress: Progress, *, by_link: bool = False) -> None:
        """Take the files of an environment in, those that are not here yet. Idempotent.

        One that is here whole keeps the bytecode that it came with.

        Args:
            by_link: nobody else uses these files, and they are about to be deleted: they become
                objects themselves where they lie on the same file system.

        Raises:
            SgpuError: a file changed since it was looked at, or the disk is full. No manifest is
                registered then, and what was copied is kept for the next try.
        """
        with self._writing() as into:
            missing = self.missing(captured.manifest)
            if by_link:
                missing = link_missing(captured, missing, into)
            stale = copy_missing(captured, missing, into, progress)
            self._hashed.update(dict.fromkeys((file.key for file in missing), time.time_ns()))
            manifest = captured.manifest
            if stale:  # bytecode that was compiled anew since: it is no part of the digest
                kept = (file for file in manifest.bytecode if file.key not in stale)
                manifest = manifest._replace(bytecode=tuple(kept))
            origin = canonical({"interpreter": captured.interpreter, "base": captured.base})
            self._write("origins", captured.digest, origin.encode())
            self._register(manifest)

    def built(self, lock_digest: str) -> str | None:
        """The digest of the manifest that a lock became."""
        found = self._record("built", lock_digest).get("manifest")
        return found if isinstance(found, str) else None

    def record_built(self, lock_digest: str, manifest_digest: str) -> None:
        """Remember what a lock became."""
        with self._writing():
            text = canonical({"manifest": manifest_digest})
            self._write("built", lock_digest, text.encode())

    def touch(self, digest: str) -> bool:
        """Keep an environment from the next collection, as if it were put now; false if it is not
        here, or not whole.

        Args:
            digest: of an environment, or of a lock that was built.
        """
        digest = self.built(digest) or digest
        try:
            with self._references.many():
                os.utime(self._path("manifests", digest))
        except OSError:
            return False
        if self.tree(digest) is not None:
            return True
        manifest = self.manifest(digest)
        return manifest is not None and not self.missing(manifest)

    def tree(self, digest: str) -> Path | None:
        """The tree of an environment if it is there and whole; looks at its folders alone."""
        from sgpu_decl.agent.environment.hydration import whole

        path = self.trees / digest.removeprefix("sha256:")
        return path if whole(os.fspath(path)) else None

    def hydrate(self, digest: str, progress: Progress) -> Path:
        """Make the tree of an environment, unless it is there.

        An object that is damaged is taken once more from where the environment came from, if that
        still has the same bytes.

        Args:
            digest: of an environment, or of a lock that was built.

        Raises:
            SgpuError: the environment is not here, is damaged beyond that, is for another Python,
                or cannot be written.
        """
        from sgpu_decl.agent.environment.hydration import Damaged

        digest = self.built(digest) or digest
        found = self.tree(digest)
        if found is not None:
            return found
        try:
            return self._hydrate(digest, progress)
        except Damaged as damaged:
            self._refetch(digest, damaged.objects, progress)
        try:
            return self._hydrate(digest, progress)
        except Damaged as damaged:
            raise _damaged(digest, damaged.objects) from None

    def _hydrate(self, digest: str, progress: Progress) -> Path:
        from sgpu_decl.agent.environment.hydration import Mismatch, hydrate

        manifest = self.manifest(digest)
        base = self._record("origins", digest).get("base")
        if manifest is None or not isinstance(base, str):
            raise SgpuError(
                f"the environment {digest[:19]} is not in the store",
                hint="plan and apply again on this machine",
                code="environment_missing",
            )
        tree = self.trees / digest.removeprefix("sha256:")
        try:
            with self._references.many():
                hydrate(
                    manifest,
                    os.fspath(self.objects),
                    os.fspath(tree),
                    base,
                    hashed_ns=self._hashed,
                    advance=progress.advance,
                )
        except (Mismatch, BadManifest) as error:
            raise SgpuError(
                f"{error}",
                hint="plan and apply again with the Python that is here now",
                code="environment_misfit",
            ) from error
        except OSError as error:
            raise store_refusal(self._root, error) from error
        return tree

    def _refetch(self, digest: str, keys: Iterable[str], progress: Progress) -> None:
        """Remove damaged objects, and copy them again from the interpreter that they came from."""
        wanted = set(keys)
        with self._writing() as into:
            for key in wanted:
                self._object(key).unlink(missing_ok=True)
            interpreter = self._record("origins", digest).get("interpreter")
            captured = None
            if isinstance(interpreter, str) and os.path.exists(interpreter):
                captured, _ = capture(interpreter, progress=progress)
            if captured is None:
                raise _damaged(digest, wanted)
            files = (*captured.manifest.bytecode, *captured.manifest.files)
            there = list({file.key: file for file in files if file.key in wanted}.values())
            if len(there) < len(wanted):
                raise _damaged(digest, wanted)
            copy_missing(captured, there, into, progress)

    def examine(self, digest: str) -> tuple[str, ...]:
        """Look at every file of a tree; returns the paths that were written to since it was made.

        Such a tree is not used again, and objects that were reached through it are let go of: they
        are had from where the environment came from.
        """
        from sgpu_decl.agent.environment.hydration import altered
        from sgpu_decl.agent.environment.tree_files import RECORD

        digest = self.built(digest) or digest
        tree, manifest = self.tree(digest), self.manifest(digest)
        if tree is None or manifest is None:
            return ()
        found = altered(os.fspath(tree), manifest)
        if found:
            with self._writing():
                keys = {file.path: file.key for file in (*manifest.files, *manifest.bytecode)}
                for path in found:
                    if path in keys and keys[path] != path:
                        self._object(keys[path]).unlink(missing_ok=True)
                (tree / RECORD).unlink(missing_ok=True)
        return tuple(found)

    def refer(self, owner: Owner, digests: Collection[str]) -> None:
        """Say that `owner` refers to these, digests of environments or of
        locks; replaces what it said before.

        Raises:
            SgpuError: that cannot be written.
        """
        try:
            self._prepare()
            self._references.refer(owner, digests)
        except OSError as error:
            raise reference_error(self._root, error) from error

    def unseen(self, ask: Callable[[Owner], Presence]) -> list[tuple[Reference, Presence]]:
        """What is kept for owners that are missing, or cannot be looked for."""
        return self._references.unseen(ask)

    def collect(self, ask: Callable[[Owner], Presence], *, now: float | None = None) -> int:
        """Delete what nothing refers to; returns the bytes that were freed.

        What is young stays: a plan may just have put it.

        Args:
            ask: asks the store of a state whether that is there; see `staging.references`.
            now: seconds since the epoch; the time it is if left out.

        Raises:
            SgpuError: a record of who needs what is damaged, or nothing can be deleted.
        """
        try:
            self._prepare()
            with self._references.alone():
                self._references.forget_gone(ask, now=now)
                referred = self._references.referred()
                referred |= {found for lock in referred if (found := self.built(lock))}
                return sweep(self._root, referred, self.manifest, self.built, now or time.time())
        except OSError as error:
            raise store_refusal(self._root, error) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Destination]:
        try:
            self._prepare()
            with self._references.many():
                yield Destination(self.objects, self._root / "incoming")
        except OSError as error:
            raise store_refusal(self._root, error) from error

    def _prepare(self) -> None:
        for name in _FOLDERS:
            (self._root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.objects / "ff").is_dir():
            for number in range(256):
                (self.objects / f"{number:02x}").mkdir(mode=0o700, parents=True, exist_ok=True)

    def _register(self, manifest: Manifest) -> None:
        """Write a manifest, unless one that differs in its bytecode is here whole: a tree may have
        been made of that, and is compared with it."""
        text = manifest.to_bytes()
        data = _seal(text) + b"\n" + text
        path = self._path("manifests", manifest.digest)
        if path.is_file() and path.read_bytes() != data:
            known = self.manifest(manifest.digest)
            if known is not None and not self.missing(known):
                os.utime(path)
                return
        self._write("manifests", manifest.digest, data)

    def keys(self) -> Iterator[str]:
        """The names of all objects that are here."""
        with contextlib.suppress(FileNotFoundError):
            for folder in os.listdir(self.objects):
                yield from os.listdir(self.objects / folder)

    def _object(self, key: str) -> Path:
        return self.objects / key[:2] / key

    def _path(self, kind: str, digest: str) -> Path:
        return self._root / kind / f"{digest.removeprefix('sha256:')}.json"

    def _record(self, kind: str, digest: str) -> dict[str, object]:
        try:
            record = json.loads(self._path(kind, digest).read_bytes())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _write(self, kind: str, digest: str, data: bytes) -> None:
        path = self._path(kind, digest)
        handle, temporary = tempfile.mkstemp(dir=self._root / "incoming")
        with open(handle, "wb") as file:
            file.write(data)
        os.rename(temporary, path)


def _unsealed(data: bytes, digest: str) -> Manifest | None:
    seal, _, text = data.partition(b"\n")
    if seal != _seal(text):  # the digest covers neither packages nor bytecode
        return None
    try:
        return Manifest.from_bytes(text, digest)
    except BadManifest:
        return None


def _seal(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _damaged(digest: str, keys: Iterable[str]) -> SgpuError:
    few = ", ".join(f"`{key[:12]}`" for key in sorted(keys)[:3])
    return SgpuError(
        f"the store no longer holds all of the environment {digest[:19]}: {few} damaged or missing",
        hint="plan and apply again: it is taken in once more",
        code="environment_damaged",
    )
