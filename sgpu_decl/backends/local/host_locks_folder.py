"""Where locks lie that all runs on this host share."""

from pathlib import Path

from sgpu_decl.agent import hostlocks

__all__ = ["host_lock_folder"]


def host_lock_folder(kind: str) -> Path:
    """The folder of locks that all runs of this host and user share. Raises OSError."""
    return Path(hostlocks.host_lock_folder(kind))
