"""Files without a name, for variables and secrets: only who has the descriptor can read them.

`/proc/PID/environ` shows the variables that a process was started with, for as long as it lives. So
variables that may be secrets reach the tracker and forked ranks in such a file.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.kernel_features import MEMFD_CREATE, available

__all__ = ["memory_file"]

_MEMORY = "/dev/shm"  # noqa: S108


def memory_file(data: bytes) -> int:
    """Return a descriptor of a new file with these bytes, that programs do not inherit.

    The file is in memory. If the kernel has no such files, it is one of /dev/shm that has lost its
    name; without that folder, one of the folder of temporary files.

    Raises:
        OSError: there is no descriptor or no room left.
    """
    descriptor = os.memfd_create("sgpu") if available(MEMFD_CREATE) else _nameless()
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    usable = os.access(_MEMORY, os.W_OK | os.X_OK)
    folder = _MEMORY if usable else os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    path = os.path.join(folder, f"sgpu-{os.urandom(16).hex()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor
