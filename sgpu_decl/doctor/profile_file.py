"""Files of workspace profiles."""

import os
from pathlib import Path

from sgpu_decl.config.workspace_profile import profile_text, read_profile
from sgpu_decl.diagnostics.diagnostic import in_order
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.planning.project_text import read_bytes
from sgpu_decl.system_errors import error_text


def load_profile(file: Path, name: str) -> Profile:
    """Read the profile that a user names.

    Raises:
        NotFound: there is no file.
        InvalidInput: it is no profile; all that is wrong is in `diagnostics`.
        SgpuError: it cannot be read.
    """
    profile, wrong = read_profile(read_bytes(file), name)
    if profile is None:
        raise InvalidInput(f"`{name}` is no profile of a workspace", diagnostics=in_order(wrong))
    return profile


def save_profile(profile: Profile, file: Path, heading: str) -> None:
    """Write a profile to a new file.

    Args:
        heading: the text of the comment at its top.

    Raises:
        SgpuError: the file exists, or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(f"# {heading}\n{profile_text(profile)}")
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise _unwritable(file, error_text(error)) from None


def check_new(file: Path) -> None:
    """Look whether a new file could be made, and make none. Raises SgpuError."""
    if file.exists():
        raise _exists(file)
    folder = file.parent
    if not folder.is_dir():
        raise _unwritable(file, f"there is no folder `{folder}`")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(file, f"`{folder}` takes no files of yours")


def _exists(file: Path) -> SgpuError:
    return SgpuError(
        f"`{file}` exists, and is not overwritten",
        hint="delete it, or name another file with `--profile FILE`",
        code="exists",
    )


def _unwritable(file: Path, why: str) -> SgpuError:
    return SgpuError(
        f"`{file}` cannot be written: {why}",
        hint="name another file with `--profile FILE`",
        code="unwritable",
    )
