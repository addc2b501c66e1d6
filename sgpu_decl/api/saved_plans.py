"""Files of saved plans, whichever project they are for."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpu_decl.applying.prepared import Prepared

__all__ = ["is_saved_plan", "load_plan", "refuse_taken"]


def is_saved_plan(path: Path) -> bool:
    """Whether a file is (or was meant to be) a saved plan, by its first characters."""
    from sgpu_decl.facts.file_kind import is_saved_plan

    return is_saved_plan(path)


def load_plan(path: Path) -> "Prepared":
    """Read a saved plan.

    Raises:
        InvalidInput: truncated, of another format, or no plan at all.
    """
    from sgpu_decl.applying.plan_file import load_plan

    return load_plan(path)


def refuse_taken(path: Path) -> None:
    """Refuse to save a plan where a file is that is none. Raises SgpuError."""
    from sgpu_decl.applying.plan_file import refuse_taken

    refuse_taken(path)
