"""The targets of a project that something was applied to, known by the states beside each other."""

from pathlib import Path

from sgpu_decl.model.target import BASE

__all__ = ["applied_targets", "elsewhere"]


def applied_targets(folder: Path) -> list[str]:
    """Those whose states lie in a folder, by name."""
    return sorted(it.parent.name for it in folder.glob("*/state.db") if it.parent.name != BASE)


def elsewhere(state_dir: Path) -> str | None:
    """Where else something was applied, as a hint for whoever looks at a target without runs."""
    here = state_dir.parent
    others = [f"with `-t {name}`" for name in applied_targets(here) if name != state_dir.name]
    if state_dir.name != BASE and (here / BASE / "state.db").exists():
        others.insert(0, "without `-t`")
    return f"something was applied {' and '.join(others)}: look there" if others else None
