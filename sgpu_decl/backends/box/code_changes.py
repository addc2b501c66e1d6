"""An archive of code on a box, made there from an older one: what changed is sent alone."""

from functools import partial

from sgpu_decl.backends.box.box_folder import BoxFolder
from sgpu_decl.backends.box.box_uploads import file_contents
from sgpu_decl.backends.box.boxes import Box, BoxRefused
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.content.code_tree import archive_name
from sgpu_decl.model.step_progress import Progress

_LOOKS = 5  # archives, the newest first
_MOST = 0.2  # of the bytes of all files; an archive is compressed


def send_code_changes(
    box: Box, folder: str, store: CodeStore, digest: str, progress: Progress
) -> bool:
    """Have the code with that digest in a folder of archives; false where a whole archive has to be
    sent: none is there whose files are known here, or too many of them have changed.

    Raises:
        SgpuError: the code is not in the store here, or the box does not answer.
    """
    code = store.require(digest)
    base = _base(box, folder, store)
    if base is None:
        return False
    before = {entry.path: entry for entry in base.entries}
    after = {entry.path: entry for entry in code.entries}
    changed = [entry for entry in code.entries if before.get(entry.path) != entry]
    size = sum(entry.size for entry in changed)
    if size > _MOST * sum(entry.size for entry in code.entries):
        return False
    message = {
        "path": f"{folder}/{archive_name(digest)}",
        "base": f"{folder}/{archive_name(base.digest)}",
        "gone": [path for path, entry in before.items() if after.get(path) != entry],
        "files": [[one.path, one.size, one.executable, one.target] for one in changed],
    }
    sent = [entry for entry in changed if entry.target is None]
    try:
        box.send("code_archive", message, partial(file_contents, store, sent, progress), size)
    except BoxRefused:  # such as an archive that is damaged
        return False
    return True


def _base(box: Box, folder: str, store: CodeStore) -> Snapshot | None:
    """The code of the newest archive that is known here."""
    there = sorted(BoxFolder(box).list(folder), key=lambda entry: -entry.modified)
    for entry in there[:_LOOKS]:
        known = store.manifest(f"sha256:{entry.name.partition('.')[0]}")
        if known is not None and entry.name == archive_name(known.digest):
            return known
    return None
