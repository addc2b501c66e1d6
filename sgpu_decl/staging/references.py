"""Which states refer to what a store holds, and who may sweep it.

roots/<hex>.json   what one owner, a file or folder, refers to
lock               shared by those who put, for the one alone who sweeps
"""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from sgpu_decl.model.jsonable import canonical

__all__ = ["References", "write_whole"]


class References:
    """The references into one store."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def refer(self, owner: Path, digests: Collection[str]) -> None:
        """Say what `owner` refers to; replaces what it said before."""
        roots = self._root / "roots"
        roots.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(owner)).hexdigest()
        record = canonical({"owner": os.fspath(owner), "digests": sorted(digests)})
        write_whole(roots / f"{name}.json", record.encode())

    def referred(self) -> set[str]:
        """What any owner refers to; one that is gone refers to nothing, and is forgotten."""
        keep: set[str] = set()
        for path in (self._root / "roots").glob("*.json"):
            try:
                record = json.loads(path.read_bytes())
                if Path(record["owner"]).exists():
                    keep.update(record["digests"])
                else:
                    path.unlink(missing_ok=True)
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return keep

    def many(self) -> contextlib.AbstractContextManager[None]:
        """Many may put at once; nobody puts while objects are swept."""
        return self._held(fcntl.LOCK_SH)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Sweep while nobody puts."""
        return self._held(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _held(self, how: int) -> Iterator[None]:
        handle = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, 0600, that is there whole or not at all, after a power cut too.

    Raises:
        OSError: it cannot be written; what was there is there still.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
