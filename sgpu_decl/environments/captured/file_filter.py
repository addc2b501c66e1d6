"""Which files of an environment's folders are captured."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sgpu_decl.code.ignore_rules import RULES, IgnoreRules
from sgpu_decl.code.secret_files import content_is_secret, is_secret
from sgpu_decl.code.selection import never_code
from sgpu_decl.environments.captured.site_layout import Root

# Takes a folder's path, relative to the root with a trailing `/`, empty for the root itself, and
# returns a function: from an entry's name and whether it is a folder to whether it is left out.
Choice = Callable[[str], Callable[[str, bool], bool]]

_CACHES = frozenset(
    {".git", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
# Installers' notes about how a package was installed.
_NOTES = re.compile(r"INSTALLER|REQUESTED|uv_\w+\.json")
# Git may ignore these, and imports need them: extension modules, generated sources.
_MADE = (".py", ".so", ".pyi")


def choice_of(root: Root) -> Choice:
    """The filter for one root."""
    return _Project(root.path).choice if root.project else _of_site


def _of_site(folder: str) -> Callable[[str, bool], bool]:
    if not folder:
        return _at_top
    return _in_info if folder.endswith(".dist-info/") else _anywhere


def _anywhere(name: str, _is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    return name in _CACHES


def _at_top(name: str, is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    if name.startswith("~"):
        return True  # left over where pip could not delete
    # `site_layout` writes new ones.
    return name in _CACHES or (not is_folder and name.endswith((".pth", ".egg-link")))


def _in_info(name: str, is_folder: bool) -> bool:  # noqa: FBT001 (a Choice)
    return not is_folder and _NOTES.fullmatch(name) is not None


class _Project:
    """The rules for code, except for files that git ignores and imports need."""

    def __init__(self, path: str) -> None:
        self._path = path
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        # An installed package may lie in a checkout of somebody else, about which git answers
        # nothing, so git is not asked.
        self._ignoring = IgnoreRules(Path(folder), whole_repository=False)

    def choice(self, folder: str) -> Callable[[str, bool], bool]:
        self._enter(folder)
        return partial(self._leaves_out, folder)

    def _leaves_out(self, folder: str, name: str, is_folder: bool) -> bool:  # noqa: FBT001
        path = folder + name
        if never_code(name, folder=is_folder) or is_secret(path):
            return True
        if not is_folder and content_is_secret(os.path.join(self._path, path)):
            return True
        if is_folder and os.path.exists(os.path.join(self._path, path, "pyvenv.cfg")):
            return True
        if name.endswith((".egg-info", *_MADE)):
            return False
        return self._ignoring.ignores(path, folder=is_folder)

    def _enter(self, folder: str) -> None:
        where = os.path.join(self._path, folder)
        names = [name for name in RULES if os.path.isfile(os.path.join(where, name))]
        self._ignoring.enter(folder.rstrip("/"), names)
