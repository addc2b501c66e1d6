"""What belongs to the code of a run, and what never does."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = [
    "Ignoring",
    "bad_pattern",
    "is_secret",
    "is_sgpu_file",
    "may_be_sgpu_file",
    "never_counts",
]

_NEVER_NAMES = frozenset(
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
    ".env*",
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
# A saved plan may have any name; these are the endings that people give to one.
_MAY_BE_OURS = ("", ".yaml", ".yml", ".json", ".plan", ".out", ".sgpu", ".sgpuplan")
LOOK = 64 * 1024


def never_counts(name: str, *, folder: bool) -> bool:
    """Whether an entry of this name is no code, whatever the user's rules say."""
    if name in _NEVER_NAMES:  # also as a link, and as the `.git` file of a worktree
        return True
    return not folder and any(fnmatchcase(name, pattern) for pattern in _NEVER_FILES)


def is_secret(path: str) -> bool:
    """Whether a relative path looks like a place where people keep secrets."""
    pure = PurePosixPath(path)
    if _SECRET_FOLDERS & set(pure.parts):
        return True
    return any(fnmatchcase(pure.name, pattern) for pattern in _SECRET_FILES)


def may_be_sgpu_file(name: str) -> bool:
    """Whether a file of this name is worth a look at its content."""
    return PurePosixPath(name).suffix in _MAY_BE_OURS


def is_sgpu_file(name: str, head: bytes) -> bool:
    """Whether a file is a run, project or plan file, by its content: editing one is a change of
    config, never of code. `head` is how the file begins."""
    if name.endswith((".yaml", ".yml")):
        text = head.decode("utf-8", "replace")
        if _MODELINE.search(text.partition("\n")[0]):
            return True
        keys = set(_KEY.findall(text))
        is_run = "gpus" in keys and bool(keys & {"entrypoint", "command"})
        return is_run or ("project" in keys and bool(keys & {"runs", "jobs"}))
    if head.lstrip().startswith(b"{"):
        text = head.decode("utf-8", "replace")
        return all(key in text for key in _PLAN_KEYS)
    return False


class Ignoring:
    """The user's rules for one tree: `.gitignore` and `.sgpuignore` of every folder, and the
    `include` and `exclude` patterns of the run. Patterns are git's.

    `above` are the ignore files of the folders between the repository's top and the root, outermost
    first: each with the root's path as seen from there.
    """

    def __init__(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        above: Sequence[tuple[str, Sequence[str]]] = (),
    ) -> None:
        self._reach = tuple(_literal_start(pattern) for pattern in include)
        self._above = [(path, spec) for path, lines in above if (spec := _spec(lines))]
        # Somebody who runs code in an ignored folder means that code.
        if self._said_above("", folder=True):
            self._above = []
        self._include = _spec(include)
        self._exclude = _spec(exclude)
        self._by_folder: dict[str, GitIgnoreSpec | None] = {}
        self._lines: dict[str, list[str]] = {}

    def enter(self, folder: str, lines: Sequence[str]) -> None:
        """Take the rules that a folder's own ignore files state; `folder` is relative, `""` the
        root. A second file of the same folder adds to the first and wins over it."""
        lines = [*self._lines.get(folder, ()), *lines]
        self._lines[folder] = lines
        self._by_folder[folder] = _spec(lines)

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether a relative path is left out. A deeper rule wins over a higher one; `include` wins
        over all, `exclude` over what ignore files say."""
        if self.includes(path, folder=folder):
            return False
        probe = f"{path}/" if folder else path
        if self._exclude is not None and self._exclude.match_file(probe):
            return True
        verdict = self._said_above(path, folder=folder)
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

    def reaches_into(self, folder: str) -> bool:
        """Whether `include` may name something in an ignored folder, which must be looked into."""
        inside = f"{folder}/"
        return any(inside.startswith(start) or start.startswith(inside) for start in self._reach)

    def _said_above(self, path: str, *, folder: bool) -> bool:
        verdict = False
        for root, spec in self._above:
            probe = f"{root}/{path}".strip("/") + ("/" if folder else "")
            said = spec.check_file(probe).include
            verdict = verdict if said is None else said
        return verdict


def bad_pattern(pattern: str) -> str | None:
    """Say what is wrong with a pattern; `None` if it can be used."""
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines([pattern])
    except (ValueError, re.error) as error:
        return str(error)
    return None if any(it.include is not None for it in spec.patterns) else "it matches nothing"


def _literal_start(pattern: str) -> str:
    """What every path that a pattern matches begins with; empty if it may match at any depth."""
    plain = pattern.removeprefix("/")
    if "/" not in pattern.rstrip("/") or pattern.startswith("**"):
        return ""
    found = re.match(r"[^*?\[\\]*", plain)
    return found.group() if found else ""


def _spec(lines: Sequence[str]) -> "GitIgnoreSpec | None":
    """A line that is no pattern is passed over, as git does."""
    told = [line for line in lines if line.strip() and not line.startswith("#")]
    if not told:
        return None  # most trees have no rules: pathspec is not even loaded then
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(told)
    except (ValueError, re.error):
        spec = GitIgnoreSpec.from_lines([line for line in told if bad_pattern(line) is None])
    return spec if any(pattern.include is not None for pattern in spec.patterns) else None
