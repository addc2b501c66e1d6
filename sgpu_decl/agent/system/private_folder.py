"""Folders that only their owner may enter."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["private_folder"]


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter, unless it is there. Those above it that are
    missing become the same: `Path.mkdir` makes them as the umask says. Raises OSError."""
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        private_folder(folder.parent)
        private_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
