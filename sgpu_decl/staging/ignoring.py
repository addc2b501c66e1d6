"""What belongs to the code of a run, and what never does."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["Ignoring", "is_secret", "is_sgpu_file", "never_counts"]

_NEVER_FOLDERS = frozenset(
    {
        ".git",
        ".sgpu",
        ".venv",
        "__pycache__",
        ".ipynb_checkpoints",
        "mlruns",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        ".import_linter_cache",
        ".tox",
        ".nox",
        ".idea",
        ".vscode",
        "node_modules",
    }
)
_NEVER_FILES = ("*.pyc", "*.pyo", "mlflow.db", "mlflow.db-*", "*.log", ".DS_Store", ".gitignore",
                ".sgpuignore")  # fmt: skip
_SECRET_FILES = (
    ".env",
    ".env.*",
    "*.pem",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".databrickscfg",
)
_SECRET_FOLDERS = frozenset({".aws", ".ssh"})

_MODELINE = re.compile(r"^#\s*yaml-language-server:.*schema=\S*(run|project)\.v1\.schema\.json")
_KEY = re.compile(r"^([A-Za-z_]+)\s*:", re.MULTILINE)
_PLAN_KEYS = ('"applyable"', '"changes"', '"address"')
LOOK = 64 * 1024


def never_counts(name: str, *, folder: bool) -> bool:
    """Whether an entry of this name is no code, whatever the user's rules say."""
    if folder:
        return name in _NEVER_FOLDERS
    return any(fnmatchcase(name, pattern) for pattern in _NEVER_FILES)


def is_secret(path: str) -> bool:
    """Whether a relative path looks like a place where people keep secrets."""
    pure = PurePosixPath(path)
    if _SECRET_FOLDERS & set(pure.parts):
        return True
    return any(fnmatchcase(pure.name, pattern) for pattern in _SECRET_FILES)


def is_sgpu_file(name: str, head: bytes) -> bool:
    """Whether a file is a run, project or plan file, by its content: editing one is a change of
    config, never of code. `head` is how the file begins."""
    if name.endswith((".yaml", ".yml")):
        text = head.decode("utf-8", "replace")
        if _MODELINE.search(text.partition("\n")[0]):
            return True
        keys = set(_KEY.findall(text))
        return ("gpus" in keys and bool(keys & {"entrypoint", "command"})) or {
            "project",
            "runs",
        } <= keys
    if head.lstrip().startswith(b"{"):
        text = head.decode("utf-8", "replace")
        return all(key in text for key in _PLAN_KEYS)
    return False


class Ignoring:
    """The user's rules for one tree: `.gitignore` and `.sgpuignore` of every folder, and the
    `include` and `exclude` patterns of the run. Patterns are git's."""

    def __init__(self, *, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = _spec(include)
        self._exclude = _spec(exclude)
        self._by_folder: dict[str, GitIgnoreSpec | None] = {}

    def enter(self, folder: str, lines: Sequence[str]) -> None:
        """Take the rules that a folder's own ignore files state; `folder` is relative, `""` the
        root."""
        self._by_folder[folder] = _spec(lines)

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether a relative path is left out. A deeper rule wins over a higher one; `include` wins
        over all, `exclude` over what ignore files say."""
        if self.includes(path, folder=folder):
            return False
        probe = f"{path}/" if folder else path
        if self._exclude is not None and self._exclude.match_file(probe):
            return True
        verdict = False
        parts = path.split("/")
        for depth in range(len(parts)):
            spec = self._by_folder.get("/".join(parts[:depth]))
            if spec is None:
                continue
            said = spec.check_file("/".join(parts[depth:]) + ("/" if folder else "")).include
            if said is not None:
                verdict = said
        return verdict

    def includes(self, path: str, *, folder: bool) -> bool:
        """Whether `include` itself names a path."""
        probe = f"{path}/" if folder else path
        return self._include is not None and bool(self._include.match_file(probe))

    @property
    def reaches_in(self) -> bool:
        """Whether ignored folders must be looked into, since `include` may name something there."""
        return self._include is not None


def _spec(lines: Sequence[str]) -> "GitIgnoreSpec | None":
    from pathspec import GitIgnoreSpec

    spec = GitIgnoreSpec.from_lines(lines)
    return spec if any(pattern.include is not None for pattern in spec.patterns) else None
