"""Saved plans: files that someone can look at, mail, and apply later."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.model.plan import Plan

if TYPE_CHECKING:
    from sgpu_decl.applying.site import Site
    from sgpu_decl.staging.snapshot import Snapshot

__all__ = ["holds_plan", "is_saved_plan", "load_plan", "refuse_taken", "save_plan"]

_RUN_FILES = (".yaml", ".yml", ".json")


def save_plan(site: "Site", plan: Plan, path: Path, snapshots: "Mapping[str, Snapshot]") -> None:
    """Write a plan and pin the code behind it in the local store.

    Args:
        snapshots: trees that were looked at just now, by digest.

    Raises:
        SgpuError: the file cannot be written, or is there and is no saved plan.
    """
    from sgpu_decl.applying.pinning import launched_code, pin
    from sgpu_decl.planning.writing import saved_text

    refuse_taken(path)
    pin(site, plan, snapshots)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(saved_text(plan), encoding="utf-8")
        temporary.chmod(0o600)
        temporary.rename(path)
        site.store.refer(path.resolve(), set(launched_code(plan)))
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SgpuError(
            f"the plan cannot be written to `{path}`: {error.strerror}",
            hint="give `--out` the path of a file in a folder that you may write to",
            code="unwritable",
        ) from None


def refuse_taken(path: Path) -> None:
    """Return where a plan may be saved: where nothing is, an empty file, or an older plan.

    Raises:
        SgpuError: a file is there that somebody may need, the run file maybe.
    """
    if not os.path.exists(path) or _replaceable(path):
        return
    raise SgpuError(
        f"`{path}` exists and is no saved plan: it is not overwritten",
        hint="give `--out` another name, such as `run.plan`; or move that file away",
        code="exists",
    )


def _replaceable(path: Path) -> bool:
    return path.is_file() and (path.stat().st_size == 0 or holds_plan(path))


def holds_plan(path: Path) -> bool:
    """Whether a file is a plan and not JSON of another kind, which a run file may be too."""
    try:
        return is_saved_plan(path) and b'"format_version"' in path.read_bytes()
    except OSError:
        return False


def is_saved_plan(path: Path) -> bool:
    """Whether a file is (or was meant to be) a saved plan, by its first characters.

    A run file may begin with a brace too. So where the name is that of one, the file counts as a
    plan if it begins with the first key of ours, or has the format's number (`-o json` of a plan).
    """
    try:
        with path.open("rb") as file:
            head = file.read(64).lstrip()
            if not head.startswith(b"{") or path.suffix not in _RUN_FILES:
                return head.startswith(b"{")
            return b'"applyable"' in head or b'"format_version"' in head + file.read()
    except OSError:
        return False


def load_plan(path: Path) -> Plan:
    """Read a saved plan.

    Raises:
        InvalidInput: truncated, of another format, or no plan at all.
    """
    from sgpu_decl.planning.writing import saved_from_json

    file = os.fspath(path)
    plan, findings = saved_from_json(path.read_text(encoding="utf-8", errors="replace"), file)
    if plan is None:
        start = Place(file, 1, 1)
        raise InvalidInput(
            f"`{path}` is not a plan that can be applied",
            hint=findings[0].hint,
            diagnostics=tuple(replace(one, place=one.place or start) for one in findings),
        )
    return plan
