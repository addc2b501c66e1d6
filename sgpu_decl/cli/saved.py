"""A saved plan, and the project that it belongs to."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.applying.opening import DEFAULT_FILES, current_folder
from sgpu_decl.cli.options import Choosing, Where
from sgpu_decl.errors import StalePlan

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.plan import Plan

__all__ = ["open_saved"]


def open_saved(where: Where, path: Path, choosing: Choosing) -> "tuple[Session, Plan]":
    """Read a saved plan and open the project it was made for.

    Raises:
        InvalidInput: the file is truncated or no plan.
        StalePlan: it was made for another project than the one here.
    """
    from sgpu_decl.applying.saving import load_plan

    if where.variables or where.sets or where.target or choosing.given:
        raise click.UsageError(
            "a saved plan is applied as it is: target, variables, overrides and selections belong "
            "to `sgpu plan`"
        )
    plan = load_plan(path)
    root = Path(where.project).resolve() if where.project else _root(plan)
    owner = next((change.launch.owner for change in plan.changes if change.launch), None)
    file = root / owner if owner else None
    there = replace(where, target=plan.target, project=str(root))
    return there.session(str(file) if file and file.is_file() else None), plan


def _root(plan: "Plan") -> Path:
    """The planned folder, or the project here on a machine that has no such folder."""
    planned = Path(plan.project)
    here = _project_here()
    if not planned.is_dir():
        return here or current_folder()
    if here is not None and not planned.resolve().is_relative_to(here):
        raise StalePlan(
            f"this plan was made for the project `{plan.project}`, not for `{here}`",
            hint=f"apply it there, or with `--project {plan.project}`",
            code="other_project",
        )
    return planned


def _project_here() -> Path | None:
    here = current_folder()
    for folder in (here, *here.parents):
        if (folder / "sgpu.yml").is_file() or (folder / ".sgpu").is_dir():
            return folder
    return here if any((here / name).is_file() for name in DEFAULT_FILES) else None
