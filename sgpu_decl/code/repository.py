"""The git repository of a folder: where it is, what it ignores, and what it tracks.

The configuration of a checkout can name programs: a file monitor, filters, hooks, pagers, external
diffs, transports. All of them are switched off here, because planning must not run programs of a
project. Without git, the rules in the checkout are read all the same; only what the configuration
adds is unknown then.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.regular_files import read_regular, trusted_path

COMMIT_COPY = "sgpu-commit"
"""A file in `.git` of a folder that holds what a commit holds: all of it is tracked."""

_PATIENCE = 5.0  # seconds, for what is only shown
_LONGEST = 60.0  # seconds, for what decides which files are code
_INTERVAL = 0.5  # seconds between two reports of a wait
_OFF = (
    "--no-pager",
    "--no-optional-locks",  # else `status` writes the index, and tells a hook
    "-c", "core.fsmonitor=",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.pager=cat",
    "-c", "diff.external=",
)  # fmt: skip
# A partial clone would fetch what it lacks, by programs that its configuration names.
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
# They lead git to another repository than that of the folder; git sets them for its hooks. The list
# is that of `git rev-parse --local-env-vars`, without those that hold configuration.
_ELSEWHERE = frozenset({
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
})  # fmt: skip
# Names of files are read from a checkout of another user, too: no program takes part in that.
_ANY_OWNER = ("-c", "safe.directory=*")
_GITLINK = "160000"
_TRUE = frozenset({"true", "yes", "on", "1", ""})


def repository_top(folder: Path) -> Path | None:
    """The nearest folder upward with a `.git`; `None` outside of a repository. git is not asked."""
    real = Path(os.path.realpath(folder))
    # `exists` is false, not an error, where permission is denied.
    return next((above for above in (real, *real.parents) if os.path.exists(above / ".git")), None)


def git_command(root: Path, *words: str, off: tuple[str, ...] = ()) -> list[str]:
    """The words of a git command that runs no program of the repository."""
    return ["git", "-C", os.fspath(root), *_OFF, *off, *words]


def git_environment(root: Path) -> dict[str, str]:
    """The environment of such a command: the repository is that of the folder, also where sgpu is
    called by a hook of another one, and git is none of its programs."""
    own = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    # Of the files at another commit, which are a copy, the checkout is where sgpu is called.
    folders = [root]
    with suppress(FileNotFoundError):  # the folder was deleted
        folders.append(Path.cwd())
    for folder in folders:
        own["PATH"] = trusted_path(own, repository_top(folder) or folder)
    return {**own, **_ENVIRONMENT}


def git_text(root: Path, *words: str, off: tuple[str, ...] = ()) -> str | None:
    """The output of such a command; `None` if it fails."""
    code, output, _ = _answer(root, *words, off=off)
    return output if code == 0 else None


def git_refusal(root: Path) -> str | None:
    """Why git does not answer in a checkout, in its own words; `None` if it does."""
    code, _, said = _answer(root, "rev-parse", "--git-dir")
    return None if code == 0 else _sentence(said)


def _sentence(said: str) -> str:
    """What git said, in one line."""
    lines = (line.removeprefix("fatal: ").removeprefix("error: ") for line in said.splitlines())
    return " ".join(" ".join(lines).split())


def _awaited(root: Path, progress: Progress, *words: str) -> tuple[int | None, str, str]:
    """What a command ends with, prints and says that decides which files are code.

    Raises:
        SgpuError: git does not answer in time (`git_silent`). Without its answer other files would
            be code.
    """
    import subprocess
    import time

    try:
        process = subprocess.Popen(
            git_command(root, *words, off=_ANY_OWNER),
            env=git_environment(root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )
    except OSError as error:
        return None, "", _no_program(error)
    began = time.monotonic()
    with process:
        while True:
            try:
                output, said = process.communicate(timeout=min(_INTERVAL, _LONGEST))
                return process.returncode, output.rstrip(), said.strip()
            except subprocess.TimeoutExpired:
                waited = time.monotonic() - began
                if waited >= _LONGEST:
                    process.kill()
                    break
                progress.advance("listing", int(waited), int(_LONGEST))
            except BaseException:
                process.kill()
                raise
    raise SgpuError(
        f"git has not answered for {_LONGEST:.0f} s in `{root}`, and which files are code depends "
        "on its answer",
        hint=f"call `{_by_hand(root, words)}` to see what it waits for: a slow network folder, or "
        "a program in the place of git",
        code="git_silent",
    )


def _by_hand(root: Path, words: tuple[str, ...]) -> str:
    return f"git -C {shlex.quote(os.fspath(root))} {shlex.join(words)}"


def _no_program(error: OSError) -> str:
    is_missing = isinstance(error, FileNotFoundError)
    return "there is no program `git`" if is_missing else f"`git` cannot be run: {error.strerror}"


def _answer(root: Path, *words: str, off: tuple[str, ...] = ()) -> tuple[int | None, str, str]:
    import subprocess

    try:
        process = subprocess.run(
            git_command(root, *words, off=off),
            env=git_environment(root),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_PATIENCE,
            check=False,
        )
    except OSError as error:
        return None, "", _no_program(error)
    except subprocess.TimeoutExpired as error:
        return None, "", str(error)
    return process.returncode, process.stdout.rstrip(), process.stderr.strip()


class Repository:
    """The repository of a checkout.

    Args:
        top: the folder that holds `.git`.
        progress: told `listing`, in seconds, while git does not answer.

    Attributes:
        lacking: why git could not be asked which files it tracks, in its own words where it has
            some: there is no git, or no repository where `.git` leads to.

    Raises:
        SgpuError: git refuses to answer in a repository (`git_refused`), or does not answer in time
            (`git_silent`). Other files would be code without its answer. Any question may raise.
    """

    def __init__(self, top: Path, progress: Progress | None = None) -> None:
        self.top = top
        self.lacking: str | None = None
        self._progress = progress or Quiet()

    @property
    def ignore_case(self) -> bool:
        """`core.ignoreCase`."""
        return self._config.get("core.ignorecase", "false").lower() in _TRUE

    @cached_property
    def excludes(self) -> tuple[tuple[str, str], ...]:
        """The rules for the whole repository, those that win last: the path and the text of the
        file of `core.excludesFile`, or its default, and of `info/exclude`."""
        return tuple(self._excludes())

    def _excludes(self) -> Iterator[tuple[str, str]]:
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        own = self._config.get("core.excludesfile", os.path.join(home, "git", "ignore"))
        for path in (own and self.top / own, self._common / "info" / "exclude"):
            try:
                if path:
                    yield os.fspath(path), read_regular(path).decode("utf-8", "surrogateescape")
            except OSError:
                continue  # git passes over a file that it cannot read

    def tracked(self, folder: Path) -> Mapping[str, bool]:
        """The paths below a folder that are in the index, and the folders that hold them; the value
        says whether the path is that of a submodule. Nothing where git cannot be asked."""
        listed = self._ask(folder, "ls-files", "--stage", "-z")
        if not listed and self.lacking is None and self._has_lost_index:
            self.lacking = "its index is missing, so it tracks nothing"
        found: dict[str, bool] = {}
        for line in listed.split("\0"):
            facts, tab, path = line.partition("\t")
            if tab:
                found[path] = facts.startswith(_GITLINK)
                while (path := path.rpartition("/")[0]) and path not in found:
                    found[path] = False
        return found

    @cached_property
    def all_tracked(self) -> bool:
        """Whether the folder holds a commit, and nothing else."""
        return os.path.isfile(self.top / ".git" / COMMIT_COPY)

    @cached_property
    def _config(self) -> Mapping[str, str]:
        words = ("config", "--null", "--type=path", "--get-regexp")
        names = r"^core\.(excludesfile|ignorecase)$"
        # Outside of a repository, git knows what is configured for the user.
        folder = self.top if self._is_there else Path(self.top.anchor)
        listed = self._ask(folder, *words, names, none=1)
        if not self._is_there and self.lacking is None:
            self.lacking = git_refusal(self.top)
        lines = (line.partition("\n") for line in listed.split("\0") if line)
        return {key: value for key, _, value in lines}

    def _ask(self, folder: Path, *words: str, none: int = 0) -> str:
        """What git prints. It ends with `none` where there is nothing to print."""
        code, output, said = _awaited(folder, self._progress, *words)
        if code in (0, none):
            return output
        why = _sentence(said) or f"git ended with {code}"
        if code is not None and self._is_there:
            raise SgpuError(
                f"git refuses to answer in `{folder}`, and which files are code depends on its "
                f"answer; it says: {why}",
                hint=f"mend the checkout until `{_by_hand(folder, words)}` works, and call this "
                "again",
                code="git_refused",
            )
        self.lacking = self.lacking or why
        return ""

    @cached_property
    def _is_there(self) -> bool:
        """Whether there is a repository where `.git` leads to, whatever is wrong with it."""
        return os.path.lexists(self._own / "HEAD") and os.path.exists(self._common / "refs")

    @property
    def _has_lost_index(self) -> bool:
        """Whether there is no index though there is a commit; git takes that for an empty one."""
        head = ("rev-parse", "--verify", "--quiet", "HEAD")
        is_lost = not os.path.exists(self._own / "index")
        return is_lost and git_text(self.top, *head, off=_ANY_OWNER) is not None

    @cached_property
    def _own(self) -> Path:
        """The folder of git that this checkout has for itself."""
        folder = self.top / ".git"
        with suppress(OSError):
            if folder.is_file():  # of a worktree, or of a submodule
                text = os.fsdecode(read_regular(folder)).strip()
                return self.top / text.removeprefix("gitdir:").strip()
        return folder

    @cached_property
    def _common(self) -> Path:
        """The folder of git that all worktrees of the repository share."""
        try:
            return self._own / os.fsdecode(read_regular(self._own / "commondir")).strip()
        except OSError:
            return self._own
