"""What a target with `mode: production` refuses: what no commit holds."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.repository import git_refusal
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import Loaded
    from sgpu_decl.planning.checkout import Checkout

_SHOWN = 5


def production_checks(
    project: Project,
    loaded: "Loaded",
    checkout: "Checkout",
    planned: Callable[[Address], bool],
) -> Iterator[Diagnostic]:
    """Find `--set` options, and files of the project or of the code of what is planned that differ
    from the commit or that git does not know. Outside of a git checkout, nothing is found about
    files."""
    if not loaded.production:
        return
    for path, _ in project.location.sets:
        yield Diagnostic(
            code="set_in_production",
            summary=f"`--set {path}` changes a target with `mode: production` for one command",
            place=Place(f"--set {path}", 1, 1),
            hint="write it into the file and commit it, or use a variable and `--var`",
        )
    assert project.file is not None  # noqa: S101  it was read
    folder = absolute(project.file).parent
    by_jobs = {job.config.run for job in loaded.jobs if planned(job.address)}
    roots = {
        (folder / (run.config.code.root or ".")).resolve()
        for run in loaded.runs
        if planned(run.address) or run.address.name in by_jobs
    }
    changed = checkout.changes({project.root, *roots})
    if changed is None or changed:
        yield _uncommitted(changed, project.root)


def _uncommitted(changed: tuple[Path, ...] | None, root: Path) -> Diagnostic:
    if changed is None:
        refusal = git_refusal(root)
        return Diagnostic(
            code="uncommitted_changes",
            summary="the target has `mode: production`, and git does not say whether the checkout "
            "differs from its commit",
            place=None,
            hint=f"git says: {refusal}" if refusal else "see what `git status` says here",
        )
    names = [os.path.relpath(path) for path in changed]
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return Diagnostic(
        code="uncommitted_changes",
        summary="the target has `mode: production`, and the checkout differs from its commit: "
        f"{shown}{rest}",
        place=None,
        hint="commit these files, let `.gitignore` name them, or use a clean checkout",
    )
