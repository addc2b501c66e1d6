"""Where things of the local backend lie on disk."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["Layout", "host_lock_folder"]

_SHARED = Path("/tmp")  # noqa: S108  what is made there is checked to be ours


@dataclass(frozen=True, slots=True)
class Layout:
    """`state_dir` is `.sgpu/<target>`, or where it was moved to off a network file system."""

    state_dir: Path

    def run(self, address: Address) -> Path:
        return self.state_dir / "runs" / address.folder

    def attempt(self, ref: AttemptRef) -> Path:
        return self.run(ref.address) / str(ref.number)

    def parallel_locks(self, ref: AttemptRef, *, called: bool) -> Path:
        """Slots of `max_parallel`, shared by the cells of one matrix, or by all calls of functions,
        whose folder has a name that no run can have."""
        return self.state_dir / "slots" / (".calls" if called else ref.address.name)


def host_lock_folder(kind: str) -> Path:
    """A folder for locks that all sgpu runs of this host and user share (ports, GPU slots).

    It is the same from every session, and outlives them as runs do: so XDG_RUNTIME_DIR, which goes
    with the last log-out, and TMPDIR say nothing here. It is ours and private; one of that name
    that belongs to another user is never used.

    Raises:
        OSError: there is no such folder to be had.
    """
    home = _SHARED / f"sgpu-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    owner = home.lstat()
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{home} is not private to this user")
    folder = home / kind
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
