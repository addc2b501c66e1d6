"""What of an environment's folders is taken along."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from sgpu_decl.environments.layout import Root
from sgpu_decl.staging.ignoring import Ignoring, is_secret, never_counts
from sgpu_decl.staging.snapshot import RULES, lines_of, rules_above

__all__ = ["Choice", "choice_of"]

# Leaves out an entry: its folder's path, relative to the root with a `/` behind it and empty for
# the root itself; its name; whether it is a folder.
Choice = Callable[[str, str, bool], bool]

_CACHES = frozenset(
    {".git", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
# Notes of who installed a package, when and from where: not what it is.
_NOTES = re.compile(r"INSTALLER|REQUESTED|uv_\w+\.json")
# What an import may need though git does not keep it: extension modules, generated sources.
_MADE = (".py", ".so", ".pyi")


def choice_of(root: Root) -> Choice:
    """How entries of one root are chosen."""
    return _Project(root.path) if root.project else _leaves_out


def _leaves_out(folder: str, name: str, is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    if is_folder or name in _CACHES:
        return name in _CACHES or name.startswith("~")  # what pip could not delete
    if not folder:
        return name.endswith((".pth", ".egg-link"))  # `layout` writes what is left of them
    return folder.endswith(".dist-info/") and _NOTES.fullmatch(name) is not None


class _Project:
    """The rules for code, but for files that git ignores and imports need."""

    def __init__(self, path: str) -> None:
        self._path = path
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        self._ignoring = Ignoring(above=rules_above(Path(folder)))
        self._entered: set[str] = set()

    def __call__(self, folder: str, name: str, is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
        self._enter(folder)
        path = folder + name
        if never_counts(name, folder=is_folder) or is_secret(path):
            return True
        if is_folder and os.path.exists(os.path.join(self._path, path, "pyvenv.cfg")):
            return True
        if name.endswith((".egg-info", *_MADE)):
            return False
        return self._ignoring.ignores(path, folder=is_folder)

    def _enter(self, folder: str) -> None:
        if folder in self._entered:
            return
        self._entered.add(folder)
        for rules in RULES:
            path = os.path.join(self._path, folder, rules)
            if os.path.isfile(path):
                self._ignoring.enter(folder.rstrip("/"), lines_of(path))
