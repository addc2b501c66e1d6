"""Temporary folders of a command, and those that commands which were killed have left."""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal, get_args

from sgpu_decl.agent.system.locks import try_lock

Kind = Literal[
    "base", "checkpoint", "code", "doctor", "emulator", "launch", "modules", "packs",
    "requirements", "results", "sync", "upload",
]  # fmt: skip

_LEFT_AFTER = timedelta(days=1)
"""An older sgpu holds no lock of a folder that it uses, and a file system may know none."""

_NAME = re.compile(rf"sgpu-(?:{'|'.join(get_args(Kind))})-[a-z0-9_]{{8}}")
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder(kind: Kind) -> Iterator[Path]:
    """An empty folder in the temporary folder of this machine, for as long as the block lasts, by
    its real path. Raises OSError."""
    # What cannot be deleted now, gc deletes.
    with tempfile.TemporaryDirectory(prefix=f"sgpu-{kind}-", ignore_cleanup_errors=True) as folder:
        lock = os.open(folder, _OPEN)
        try:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield Path(os.path.realpath(folder))
        finally:
            os.close(lock)


def delete_left_scratch() -> None:
    """Delete the folders of this user that no command uses. What cannot be deleted is another
    process's, or stays for the next call."""
    oldest = time.time() - _LEFT_AFTER.total_seconds()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        left = [Path(item.path) for item in found if _NAME.fullmatch(item.name)]
        for folder in left:
            with suppress(OSError):
                _delete_left(folder, oldest)


def _delete_left(folder: Path, oldest: float) -> None:
    lock = os.open(folder, _OPEN)
    try:
        status = os.fstat(lock)
        if status.st_uid == os.getuid() and status.st_mtime < oldest and try_lock(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
