"""What keeps a GPU from a run beside the locks of its own user: programs that use it, and runs of
other users.

Runs of all users lock a file for each GPU, in a folder of `/tmp` that all may write to. So two runs
that start at the same time get different GPUs, though NVML names neither of them yet. Such a file
says nothing: another user may have written it, and it is never read.

systemd-tmpfiles passes a folder over while somebody has a lock on it
(https://systemd.io/TEMPORARY_DIRECTORIES/).
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress

from sgpu_decl.agent.attempt.attempt_files import say
from sgpu_decl.agent.host.gpu_users import asked_apart, in_words
from sgpu_decl.agent.system.locks import is_at, try_lock
from sgpu_decl.agent.system.processes import start_time, until_one_ends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_AGAIN = 5.0  # seconds until NVML is asked again, if none of the processes ends before
_PAUSE = 0.2  # a process that has ended may be listed for a moment
_FILE = 0o666  # with less, another user could not keep the file from a cleaner
_FOLDER = 0o1777


class GpuGate:
    """`ignored` are the pids of those who launched the run: they wait for it. `folder` has the
    locks of all users."""

    def __init__(self, folder: str, ignored: Collection[int]) -> None:
        self._path = folder
        self._ignored = ignored
        self._locks: dict[str, int] = {}
        self._folder = _shared_folder(folder)

    def used(self, devices: Sequence[str]) -> dict[str, str]:
        """Return, for each device that others use, who that is."""
        users = asked_apart(devices, self._ignored)
        return {device: in_words(device, found) for device, found in users.items()}

    def take(self, device: str) -> bool:
        """Take the lock of all users; False if somebody has it."""
        descriptor = self._open(device)
        if descriptor is None:
            return True
        if not try_lock(descriptor):
            os.close(descriptor)
            return False
        self._locks[device] = descriptor
        return True

    def wait(self, device: str) -> None:
        """Block until nobody else has or uses a device."""
        descriptor = self._open(device)
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        while users := asked_apart([device], self._ignored).get(device):
            living = [pid for pid, _ in users if start_time(pid) is not None]
            if living:
                until_one_ends(living, _AGAIN)
            time.sleep(_PAUSE if living else _AGAIN)
        if descriptor is not None:
            os.close(descriptor)

    def touch(self) -> None:
        """Keep the files from cleaners."""
        for descriptor in self._locks.values():
            with suppress(PermissionError):  # its owner lets nobody write it
                os.utime(descriptor)

    def release(self) -> None:
        """Give all locks back."""
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()

    def _open(self, device: str) -> int | None:
        """Open the lock file of a device; None if there is none that all users may lock."""
        if self._folder is None:
            return None
        path = os.path.join(self._path, "gpu-" + device.replace("/", "_"))
        try:
            descriptor = _opened(path)
        except OSError as error:
            say(f"cannot share the lock of GPU {device} with other users: {error}")
            return None
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and is_at(descriptor, path):
            return descriptor
        os.close(descriptor)
        say(f"cannot share the lock of GPU {device} with other users: `{path}` is no plain file")
        return None


def _opened(path: str) -> int:
    """Open a lock file in a folder of all users. The kernel refuses O_CREAT for a file of another
    user there (`fs.protected_regular`), so it comes after a try without it. O_NONBLOCK: a pipe of
    somebody else would let us wait."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for mode in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(path, flags | mode)
        except FileNotFoundError:
            break
        except PermissionError:
            continue
    try:
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE)
    except FileExistsError:  # another run made it meanwhile
        return os.open(path, flags | os.O_RDONLY)
    os.fchmod(descriptor, _FILE)  # whatever the umask
    return descriptor


def _shared_folder(folder: str) -> int | None:
    """Open, and keep from cleaners, the folder of all users; None if its files are not safe from
    others, or it cannot be made."""
    try:
        if not os.path.lexists(folder):
            draft = f"{folder}.{os.getpid()}"
            os.mkdir(draft)
            os.chmod(draft, _FOLDER)
            try:
                os.rename(draft, folder)
            except OSError:  # another run made it meanwhile
                os.rmdir(draft)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH:
            os.close(descriptor)
            raise PermissionError(f"its mode is not {_FOLDER:o}")
        with suppress(BlockingIOError):  # a cleaner looks at it just now
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        say(f"cannot share locks of GPUs with other users in `{folder}`: {error}")
        return None
    return descriptor
