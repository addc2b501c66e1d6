"""Decides which files of a tree are the code of a run, and which rule excludes the others."""

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import translate
from pathlib import Path

from sgpu_decl.code.git_patterns import Pattern
from sgpu_decl.code.ignore_rules import RULES, IgnoreRules
from sgpu_decl.code.secret_files import LOOK, MAY_HOLD_SECRET, holds_secret, is_secret
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.regular_files import read_head, special_kind

_NEVER_NAMES = frozenset({
    ".git", ".sgpu", ".venv", "__pycache__", ".ipynb_checkpoints", "mlruns", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", ".tox", ".nox", ".idea",
    ".vscode", "node_modules",
    # environments of pixi, hatch, PDM, direnv and spack
    ".pixi", ".hatch", "__pypackages__", ".direnv", ".spack-env",
    # what trackers leave
    ".hydra", ".neptune", ".aim", ".cometml-runs", "mlartifacts",
})  # fmt: skip
_NEVER_FILES = re.compile("|".join(map(translate, (
    "*.pyc", "*.pyo", ".DS_Store", *RULES,
))))  # fmt: skip
# These may be named by `code.include`.
_USUALLY_NEVER_FILES = re.compile("|".join(map(translate, (
    "mlflow.db", "mlflow.db-*", "mlflow.db.*", "*.log", "nohup.out", "slurm-[0-9]*.out",
    "sgpu-report-*.html",  # of `sgpu report`
    "events.out.tfevents.*", "*.nsys-rep", "*.ncu-rep", ".coverage", ".coverage.*",
    # of editors: Vim's swap files, Emacs' locks and copies
    ".*.sw[a-p]", "*~", ".#*", "#*#",
    # of systems: macOS and Windows, files that are deleted and still open
    "._*", "Thumbs.db", "desktop.ini", ".nfs[0-9a-f]*", ".fuse_hidden*",
))) + r"|core\.\d+\Z")  # fmt: skip
_DATED = re.compile(r"(^|/)\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d(/\d+)?")  # a folder that Hydra makes
_VERSION = re.compile(r"version_\d+")
_MODELINE = re.compile(r"^#\s*yaml-language-server:.*schema=\S*(run|project)\.v1\.schema\.json")
_KEY = re.compile(r"^([A-Za-z_]+)\s*:", re.MULTILINE)
# `project` is a mapping with a `name`, in one line or in several.
_NAMED = re.compile(
    r"^project\s*:\s*(\{[^}]*\bname\s*:|(#.*)?\n((\s*#.*|[ \t]+.*)?\n)*?[ \t]+name\s*:)",
    re.MULTILINE,
)
RENDERED = "# Written by `sgpu bundle render`: change sgpu.yml, and render again.\n"
"""How a file of jobs begins. They name the code, so they are no part of it."""
SCHEMA_ID = '"$id": "urn:sgpu:schema:'
_PLAN_KEYS = ('"applyable"', '"changes"', '"address"')
# The first line that `--json-into` writes, up to the version of sgpu.
_EVENTS = re.compile(rb'\{"v": 1, "ts": "[^"]*", "type": "version", "tool_version": ')
EVENT_ENDINGS = (".jsonl", ".ndjson", ".json")
"""Of the files of `--json-into`, which are told from code by their content."""
# A saved plan may have any name; these are the usual endings.
_MAY_BE_OURS = ("", ".yaml", ".yml", ".plan", ".out", ".sgpu", ".sgpuplan", *EVENT_ENDINGS)


class SelectionRule(StrEnum):
    """The rules that exclude a file or folder."""

    GITIGNORE = "gitignore"
    SGPUIGNORE = "sgpuignore"
    EXCLUDE = "code.exclude"
    LINK = "code.link"
    SECRET = "secret"  # noqa: S105
    NEVER = "never_counts"
    ENVIRONMENT = "virtual_environment"
    SGPU_FILE = "sgpu_file"
    SPECIAL = "special_file"
    OUTPUT = "own_output"
    EMPTY = "empty_folder"
    SUBMODULE = "empty_submodule"
    TOOL = "tool_output"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A path that is not part of the code, and the rule that excludes it. `path` is relative to the
    root; with a trailing `/` it is a folder with everything below it. `pattern` is that of an
    ignore file or of `code.exclude`."""

    path: str
    rule: SelectionRule
    pattern: Pattern | None = None

    def __str__(self) -> str:
        """The rule in words: "line 3 of `.gitignore` (`data/`)"."""
        at = self.pattern
        if at is not None and at.file is not None:
            return f"line {at.line} of `{at.file}` (`{at.text.strip()}`)"
        if at is not None:
            return f"`{at.text}` in `code.exclude`"
        return _WORDS[self.rule]

    def about(self, folder: str) -> str:
        """The rule as the reason why nothing of a folder is part of the code."""
        if self.path.rstrip("/") == folder or f"{folder}/".startswith(self.path):
            return str(self)
        return f"all that it holds is left out, such as `{self.path}` by {self}"


_WORDS = {
    SelectionRule.LINK: "`code.link`: ranks on this machine find a link to it",
    SelectionRule.SECRET: "such files hold secrets",
    SelectionRule.NEVER: "files of this name are never code",
    SelectionRule.ENVIRONMENT: "it is a Python environment",
    SelectionRule.SGPU_FILE: "it is a run file, a project file, a plan or a schema of these",
    SelectionRule.SPECIAL: "it is not a regular file",
    SelectionRule.OUTPUT: "sgpu writes its output to it",
    SelectionRule.EMPTY: "the folder is empty",
    SelectionRule.SUBMODULE: "the submodule is empty: `git submodule update --init` fetches it",
    SelectionRule.TOOL: "a tracker or framework left it there",
}


_EMPTY = (SelectionRule.EMPTY, SelectionRule.SUBMODULE)


def never_code(name: str, *, folder: bool) -> bool:
    """Whether an entry of this name is no code, unless `code.include` names it and it is one of
    `_USUALLY_NEVER_FILES`."""
    if name in _NEVER_NAMES:  # even as a link, or as the `.git` file of a worktree
        return True
    if folder:
        return False
    return bool(_NEVER_FILES.match(name) or _USUALLY_NEVER_FILES.match(name))


class Selection:
    """Decides entry by entry; folders are entered from the root down.

    Args:
        root: the folder of the code; absolute.
        include, exclude, link: as in the YAML.
        owners: sgpu's own files that are in use.
        outputs: device and inode of files that this command writes to.
        progress: told how long git is waited for.
    """

    def __init__(
        self,
        root: Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        link: Sequence[str] = (),
        owners: Collection[Path] = (),
        outputs: Collection[tuple[int, int]] = (),
        progress: Progress | None = None,
    ) -> None:
        self._root = os.fspath(root)
        self.include, self.exclude, self.link = include, exclude, link
        self._ignoring = IgnoreRules(root, include=include, exclude=exclude, progress=progress)
        self.linked = frozenset(os.path.normpath(path) for path in link)
        self._owners = {os.path.realpath(path) for path in owners}
        self._owner_names = {os.path.basename(path) for path in self._owners}
        self._outputs = outputs

    def enter(self, folder: str, names: Collection[str]) -> None:
        """Add the ignore files of a folder that holds `names`.

        Raises:
            OSError: one cannot be read, or is a link that leads out of the project. `filename` is
                its path, relative to the root.
        """
        self._ignoring.enter(folder, names)

    def entry(
        self, path: str, name: str, *, folder: bool, within: Exclusion | None = None
    ) -> Exclusion | None:
        """The rule that excludes an entry by its path.

        Args:
            within: the exclusion of its folder. In there, what `code.include` names counts, and
                what git tracks.
        """
        shown = f"{path}/" if folder else path
        if path in self.linked:
            return Exclusion(shown, SelectionRule.LINK)
        if never_code(name, folder=folder):
            usually = not folder and _USUALLY_NEVER_FILES.match(name) is not None
            if not usually or not self._ignoring.names(path):
                return Exclusion(shown, SelectionRule.NEVER)
        if is_secret(path):
            return Exclusion(shown, SelectionRule.SECRET)
        if within is not None:
            if self._ignoring.includes(path, folder=folder):
                return None
            if within.rule is not SelectionRule.GITIGNORE or not self._ignoring.tracks(path):
                return replace(within, path=shown)
        git = within is None
        pattern = self._ignoring.pattern(path, folder=folder, git=git)
        if pattern is None and within is not None:  # git tracks it in a folder that it ignores
            if folder and not self._ignoring.is_submodule(path):
                return replace(within, path=shown)
            self._ignoring.taken_anew.add(path)
        return Exclusion(shown, _rule_of(pattern), pattern) if pattern is not None else None

    def file(self, path: str, facts: os.stat_result) -> Exclusion | None:
        """The rule that excludes a file by its type or content; `facts` are those of `lstat`.

        Raises:
            OSError: it cannot be read.
        """
        whole, name = f"{self._root}/{path}", path.rpartition("/")[2]
        is_link = stat.S_ISLNK(facts.st_mode)
        may_be_owner = bool(self._owners) and (is_link or name in self._owner_names)
        if may_be_owner and os.path.realpath(whole) in self._owners:
            return Exclusion(path, SelectionRule.SGPU_FILE)
        if is_link:
            return None
        if special_kind(facts.st_mode):
            return Exclusion(path, SelectionRule.SPECIAL)
        ending = os.path.splitext(name)[1]
        ours, secret = ending in _MAY_BE_OURS, ending in MAY_HOLD_SECRET
        if ours or secret:
            head = read_head(whole, LOOK)
            if secret and holds_secret(name, head):
                return Exclusion(path, SelectionRule.SECRET)
            if ours and _EVENTS.match(head):
                return Exclusion(path, SelectionRule.OUTPUT)
            if ours and not self._ignoring.names(path):
                if is_sgpu_file(name, head):
                    return Exclusion(path, SelectionRule.SGPU_FILE)
                if _looked_like_ours(name, head):
                    self._ignoring.taken_anew.add(path)
        if (facts.st_dev, facts.st_ino) in self._outputs:
            return Exclusion(path, SelectionRule.OUTPUT)
        return None

    def whole_folder(self, folder: str, names: Collection[str]) -> Exclusion | None:
        """The rule that excludes a folder that holds `names`, by what it holds."""
        shown = f"{folder}/"
        if not names:
            is_submodule = self._ignoring.is_submodule(folder)
            rule = SelectionRule.SUBMODULE if is_submodule else SelectionRule.EMPTY
            return Exclusion(shown, rule)
        if _is_environment(os.path.join(self._root, folder), names):
            return Exclusion(shown, SelectionRule.ENVIRONMENT)
        if _is_tool_output(folder, names) and not self._ignoring.includes(folder, folder=True):
            return Exclusion(shown, SelectionRule.TOOL)
        return None

    def reaches_into(self, folder: str) -> bool:
        """Whether something in a folder that a pattern excludes may count."""
        return self._ignoring.reaches_into(folder)

    @property
    def taken_anew(self) -> Collection[str]:
        """The files and folders that older versions left out."""
        return self._ignoring.taken_anew

    @property
    def git_lacking(self) -> Mapping[str, str]:
        """The checkouts whose git could not be asked, each with the reason."""
        return self._ignoring.lacking


def exclusion_of(
    root: Path,
    path: str,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    link: Sequence[str] = (),
    owners: Collection[Path] = (),
) -> Exclusion | None:
    """The rule that excludes one path or a folder above it; `None` if it is code or does not exist.
    Only this path is checked.

    Args:
        root: the folder of the code; absolute.
        path: relative to the root, with `/`.
    """
    selection = Selection(root, include=include, exclude=exclude, link=link, owners=owners)
    path = os.path.normpath(path)
    within: Exclusion | None = None
    try:
        for _, inside in _down(path):  # `code.link` comes before all other rules
            if inside in selection.linked:
                return Exclusion(
                    f"{inside}/" if (root / inside).is_dir() else inside, SelectionRule.LINK
                )
        for folder, inside in _down(path):
            names = os.listdir(root / folder)
            if folder and (whole := selection.whole_folder(folder, names)) is not None:
                return whole
            selection.enter(folder, names)
            facts = os.lstat(root / inside)
            is_folder = stat.S_ISDIR(facts.st_mode)
            name = inside.rpartition("/")[2]
            exclusion = selection.entry(inside, name, folder=is_folder, within=within)
            if exclusion is not None and not (
                is_folder and exclusion.pattern and selection.reaches_into(inside)
            ):
                return exclusion
            within = exclusion
            if not is_folder:
                return exclusion or selection.file(inside, facts)
        names = os.listdir(root / path)
        whole = selection.whole_folder(path, names)
        if within is not None and whole is not None and whole.rule in _EMPTY:
            return within
        return whole or within
    except OSError:
        return None


def _down(path: str) -> Iterator[tuple[str, str]]:
    """Each folder on the way to a path, and the next part of the path."""
    parts = path.split("/")
    for depth in range(len(parts)):
        yield "/".join(parts[:depth]), "/".join(parts[: depth + 1])


def _rule_of(pattern: Pattern) -> SelectionRule:
    if pattern.file is None:
        return SelectionRule.EXCLUDE
    ours = pattern.file.endswith(".sgpuignore")
    return SelectionRule.SGPUIGNORE if ours else SelectionRule.GITIGNORE


def _is_environment(folder: str, names: Collection[str]) -> bool:
    """Whether a folder is the environment of a tool: venv, conda, or an old virtualenv."""
    if "pyvenv.cfg" in names or "conda-meta" in names:
        return True
    return "lib" in names and any(
        os.path.exists(os.path.join(folder, programs, "activate_this.py"))
        for programs in ("bin", "Scripts")
        if programs in names
    )


def _is_tool_output(folder: str, names: Collection[str]) -> bool:
    """Whether a tool has surely left a folder: Weights & Biases, SwanLab, DVCLive, Lightning (whose
    loggers have a folder for each version below any name, such as `tb_logs`) or Hydra."""
    name = folder.rpartition("/")[2]
    if name in ("wandb", "swanlog"):
        runs = any(one.startswith(("run-", "offline-run-", "latest-run")) for one in names)
        return runs and "__init__.py" not in names
    if name == "dvclive":
        return "metrics.json" in names and "__init__.py" not in names
    if name == "lightning_logs":
        return all(one.startswith("version_") for one in names)
    if _VERSION.fullmatch(name) and "hparams.yaml" in names:
        events = any(one.startswith("events.out.tfevents.") for one in names)
        return events or "metrics.csv" in names
    return bool(_DATED.search(folder)) and not {".hydra", "multirun.yaml"}.isdisjoint(names)


def is_sgpu_file(name: str, head: bytes) -> bool:
    """Whether a file is a run, project or plan file, a schema of these, or a rendered one, by its
    content: they are config, not code. A YAML file is one only if sgpu knows all of its keys."""
    if name.endswith((".yaml", ".yml")):
        text = head.decode("utf-8", "replace")
        if _MODELINE.search(text.partition("\n")[0]) or text.startswith(RENDERED):
            return True
        return _looked_like_ours(name, head) and _is_valid(text)
    if head.lstrip().startswith(b"{"):
        text = head.decode("utf-8", "replace")
        return SCHEMA_ID in text or all(key in text for key in _PLAN_KEYS)
    return False


def _looked_like_ours(name: str, head: bytes) -> bool:
    """Whether a YAML file has keys of a run or project file, which was all that older versions
    asked for."""
    if not name.endswith((".yaml", ".yml")):
        return False
    keys = set(_KEY.findall(head.decode("utf-8", "replace")))
    is_run = "gpus" in keys and bool(keys & {"entrypoint", "command"})
    return is_run or ("project" in keys and bool(keys & {"runs", "jobs"}))


def _is_valid(text: str) -> bool:
    """Whether all keys at the top are those of a run or of a project, and a project has a name."""
    from sgpu_decl.config.project import ProjectFile
    from sgpu_decl.config.run import RunConfig

    keys = set(_KEY.findall(text))
    if "project" in keys and keys & {"runs", "jobs"}:
        known = {*ProjectFile.model_fields, "variables", "targets"}
        return keys <= known and _NAMED.search(text) is not None
    return keys <= {*RunConfig.model_fields, "variables", "targets"}
