"""Finds the git repository of a folder, without git."""

import os
from pathlib import Path


def repository_top(folder: Path) -> Path | None:
    """The nearest folder upward with a `.git`; `None` outside of a repository."""
    real = Path(os.path.realpath(folder))
    # `exists` is false, not an error, where permission is denied.
    return next((above for above in (real, *real.parents) if os.path.exists(above / ".git")), None)
