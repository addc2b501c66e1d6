"""The name that a state of this machine has after it was copied to a store that machines share. As
long as it is there, no new state begins in the place of the old one."""

import os
import shlex
from pathlib import Path

from sgpu_decl.errors import SgpuError

__all__ = ["migrated_file", "refuse_migrated"]


def migrated_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.migrated")


def refuse_migrated(file: Path) -> None:
    """Refuse to use or to make a state that was copied to a shared store.

    Raises:
        SgpuError: it was, and there is none of its name since.
    """
    old = migrated_file(file)
    if old.exists() and not file.exists():
        source, destination = shlex.quote(os.fspath(old)), shlex.quote(os.fspath(file))
        raise SgpuError(
            f"the state of this project was migrated to a shared one, and `{old}` was kept",
            hint="name the store with `state` in `sgpu.yml` again; or to go on with what was kept: "
            f"`mv {source} {destination}`",
            code="state_migrated",
        )
