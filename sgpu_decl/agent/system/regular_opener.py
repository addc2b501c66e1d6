"""An opener for files that ranks may have replaced by something else than a regular file.

A FIFO blocks whoever opens it until somebody writes; a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["regular_opener"]


def regular_opener(path: str, flags: int) -> int:
    """Open a regular file, never waiting: an `opener` for `open`.

    Raises:
        OSError: it cannot be opened, or is a FIFO, a device, a socket or a folder.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
