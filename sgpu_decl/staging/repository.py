"""The git repository of a folder, found without running git."""

import os
from pathlib import Path

__all__ = ["repository_top"]


def repository_top(folder: Path) -> Path | None:
    """The nearest folder from this one upward that holds `.git`; `None` outside of a repository."""
    real = Path(os.path.realpath(folder))
    # `exists` is false, not an error, where it cannot be looked at.
    return next((above for above in (real, *real.parents) if os.path.exists(above / ".git")), None)
