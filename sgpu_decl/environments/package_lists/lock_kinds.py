"""Reads the pinned packages of lock files of every kind."""

from pathlib import Path

from sgpu_decl.content.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.lock_file import LockedPackages
from sgpu_decl.environments.package_lists.markers import marker_values
from sgpu_decl.environments.package_lists.other_tool_files import other_tool_file
from sgpu_decl.environments.package_lists.pinned_requirements import read_pinned
from sgpu_decl.environments.package_lists.pylock import read_pylock
from sgpu_decl.environments.package_lists.requirements import read_text
from sgpu_decl.environments.package_lists.toml import read_toml
from sgpu_decl.environments.package_lists.uvlock import read_uv_lock

_TOML = (".toml", ".lock")


def read_lock(
    path: Path, shown: str, *, python: Python | None = None
) -> tuple[LockedPackages | None, tuple[Diagnostic, ...]]:
    """Read `pylock.toml`, `uv.lock` or a requirements file whose lines are pinned.

    Args:
        shown: the user's name for it, for places.
        python: the interpreter that markers are evaluated for; the one that runs sgpu if `None`.

    Returns:
        The pins, or `None`, and the findings.
    """
    values = marker_values(python)
    if path.suffix not in _TOML:
        return read_pinned(path, shown, values)
    text = read_text(path, shown)
    if isinstance(text, Diagnostic):
        return None, (text,)
    finding = other_tool_file(shown, text, Place(shown, 1, 1))
    if finding is not None:
        return None, (finding,)
    toml = read_toml(text, shown)
    if isinstance(toml, Diagnostic):
        return None, (toml,)
    if "lock-version" in toml.data:
        locked, findings = read_pylock(toml, values)
    elif "package" in toml.data or "requires-python" in toml.data:
        locked, findings = read_uv_lock(toml, values)
    else:
        return None, (_unknown(shown),)
    return (None if has_errors(findings) else locked), findings


def _unknown(shown: str) -> Diagnostic:
    return Diagnostic(
        code="lock_unknown",
        summary=f"`{shown}` is TOML, and neither a `pylock.toml` nor a `uv.lock`",
        place=Place(shown, 1, 1),
        hint="make one with `uv lock` or `uv export --format pylock.toml`",
    )
