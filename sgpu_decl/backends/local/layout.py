"""Where things of the local backend lie on disk."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["Layout", "host_lock_folder"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`state_dir` is `.sgpu/<target>`, or where it was moved to off a network file system."""

    state_dir: Path

    def run(self, address: Address) -> Path:
        return self.state_dir / "runs" / address.folder

    def attempt(self, ref: AttemptRef) -> Path:
        return self.run(ref.address) / str(ref.number)

    def parallel_locks(self, ref: AttemptRef) -> Path:
        """Slots of `max_parallel`, shared by the cells of one matrix."""
        return self.state_dir / "slots" / ref.address.name


def host_lock_folder(kind: str) -> Path:
    """A folder for locks that all sgpu runs of this host and user share (ports, GPU slots).

    It lies on a local, memory-backed file system where there is one, is ours and private; a folder
    of that name that belongs to another user is never used.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"sgpu-{os.getuid()}" / kind
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = folder.parent.stat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{folder.parent} is not private to this user")
    return folder
