"""What runs on a box are made from, sent there: only what its store lacks."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sgpu_decl.backends.box.box_folder import BoxFolder
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import SnapshotEntry
from sgpu_decl.content.manifest import Python
from sgpu_decl.content.python_match import mismatch
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.step_progress import Progress

if TYPE_CHECKING:
    from sgpu_decl.environments.environment_store import EnvironmentStore

_LARGE = 16 << 20  # bytes of a file that is not read whole
_PART = 1 << 20
_BUILD = 3600.0  # seconds that a tree may take to be made


class BoxUploads:
    """Sends each content once in a process."""

    def __init__(
        self, store: Callable[[], CodeStore], environments: "Callable[[], EnvironmentStore]"
    ) -> None:
        self._store = store
        self._environments = environments
        self._trees: dict[tuple[Box, str], str] = {}
        self._codes: set[tuple[Box, str]] = set()
        self._lock = threading.Lock()

    def code(self, box: Box, digest: str, progress: Progress, *, again: bool = False) -> str:
        """Have the code there; return its digest in hex. `again` looks even if it was sent.

        Raises:
            SgpuError: it is not in the store here.
            BackendError: the box takes nothing.
        """
        key = digest.removeprefix("sha256:")
        with self._lock:
            if (box, key) not in self._codes or again:
                self._send_code(box, digest, key, progress)
                self._codes.add((box, key))
        return key

    def tree(self, box: Box, digest: str, progress: Progress) -> str:
        """Have the tree of an environment, or of that of a lock, there; return its path.

        Raises:
            SgpuError: as `code`.
        """
        with self._lock:
            if (box, digest) not in self._trees:
                self._trees[box, digest] = self._make_tree(box, digest, progress)
            return self._trees[box, digest]

    def _send_code(self, box: Box, digest: str, key: str, progress: Progress) -> None:
        snapshot = self._store().require(digest)
        answer = box.ask("code_lacks", code=key)
        if answer.get("unknown"):
            entries = canonical([entry.to_json() for entry in snapshot.entries])
            data = entries.encode("utf-8", "surrogatepass")
            answer = box.send("code_lacks", {"code": key}, lambda: [data], len(data))[0]
        lacks = set(answer["lacks"])
        entries_by_digest = {one.digest: one for one in snapshot.entries if one.digest in lacks}
        wanted = list(entries_by_digest.values())
        if wanted:
            listed = [[entry.digest, entry.size] for entry in wanted]
            contents = partial(file_contents, self._store(), wanted, progress)
            box.send("code_objects", {"objects": listed}, contents, sum(one.size for one in wanted))

    def _make_tree(self, box: Box, digest: str, progress: Progress) -> str:
        store = self._environments()
        tree = store.build_of(digest) or digest
        message = {"environment": tree.removeprefix("sha256:")}
        try:
            return str(box.send("make_tree", message, patience=_BUILD)[0]["tree"])
        except BackendError as error:
            if error.code != "environment_missing":
                raise
        manifest = store.need_manifest(tree)
        why = mismatch(manifest.python, Python(**box.ask("python_of")["python"]))
        if why:
            raise BackendError(
                f"the environment does not fit `{box.host}`: {why}",
                hint="name another Python of that machine with `backend.python`, or make the "
                "environment by a Python like that one",
                code="environment_misfit",
            )
        send(manifest, store.objects, BoxFolder(box), f"{box.hello['root']}/packs", progress)
        return str(box.send("make_tree", message, patience=_BUILD)[0]["tree"])


def file_contents(
    store: CodeStore, entries: Sequence[SnapshotEntry], progress: Progress
) -> Iterator[bytes]:
    """The contents of files, one after the other."""
    done, total = 0, sum(entry.size for entry in entries)
    for entry in entries:
        for part in _parts(store, entry):
            yield part
            done += len(part)
            progress.advance("uploading", done, total)


def _parts(store: CodeStore, entry: SnapshotEntry) -> Iterator[bytes]:
    if entry.size < _LARGE:
        data = store.content(entry)
        if data is None:
            raise SgpuError(
                f"the store no longer holds the planned content of `{entry.path}`",
                hint="plan again: it is stored again from your files",
                code="store_damaged",
            )
        yield data
        return
    with open(store.object_path(entry.digest), "rb") as file:
        while part := file.read(_PART):
            yield part
