"""The files of a project at another commit, from git's object store, in a temporary folder. No
checkout is touched, and no filter, hook or other program of the repository is run.

What lies outside of the project's folder is taken as it is needed: a repository may be large.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Self

from sgpu_decl.code.ignore_rules import RULES
from sgpu_decl.code.repository import (
    COMMIT_COPY,
    git_command,
    git_environment,
    git_refusal,
    git_text,
    repository_top,
)
from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.project import Project
from sgpu_decl.scratch_folders import scratch_folder

_FILE_MODES = {"100644": 0o644, "100755": 0o755}
_LINK = "120000"
_ABOVE = (*RULES, "pyproject.toml", "uv.toml")
"""Files in the folders above a project that say something about it: what is ignored, and the
settings of uv."""
_AT_ONCE = 500  # blobs that are asked for before the first answer is read; 41 bytes each


def resolve_base(root: Path, ref: str) -> str:
    """Return the id of the commit that `ref` names in the checkout of a project.

    Raises:
        SgpuError: there is no checkout, no such commit in it, or git does not answer.
    """
    if repository_top(root) is None:
        raise SgpuError(
            f"`{root}` is in no git checkout, so there is no `{ref}` to compare with",
            hint="leave out `--base`, or plan in a clone",
            code="no_base",
        )
    named = None if ref.startswith("-") else f"{ref}^{{commit}}"
    commit = named and git_text(root, "rev-parse", "--verify", "--quiet", named)
    if commit:
        return commit
    shallow = git_text(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:  # git is missing, or refuses a checkout that another user owns
        raise SgpuError(
            f"git does not answer in `{root}`, so there is no `{ref}` to compare with",
            hint=f"git says: {git_refusal(root)}",
            code="no_base",
        )
    if shallow == "true":
        raise SgpuError(
            f"there is no commit `{ref}` here: this is a shallow clone",
            hint="fetch the history with `git fetch --unshallow`, or let CI clone all of it "
            "(`fetch-depth: 0` of `actions/checkout`, `GIT_DEPTH: 0` of GitLab)",
            code="no_base",
        )
    raise SgpuError(
        f"there is no commit `{ref}` here",
        hint="fetch it with `git fetch`, or check the name",
        code="no_base",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blob:
    mode: str
    id: str
    path: str


class BaseFiles:
    """The files at a commit, in a folder that is deleted at the end of the `with` block.

    Args:
        project: the project as it is now.
        commit: the id of the commit.

    Raises:
        SgpuError: the commit lacks the file of the project, or an object is not here.
    """

    def __init__(self, project: Project, commit: str) -> None:
        top = repository_top(project.root)
        assert top is not None and project.file is not None  # noqa: S101, PT018  asked before
        self._top, self._commit = top, commit
        self._scratch = ExitStack()
        self._copy = self._scratch.enter_context(scratch_folder("base")) / top.name
        (self._copy / ".git").mkdir(parents=True)  # here the repository ends, for ignored files
        (self._copy / ".git" / COMMIT_COPY).touch()
        inside = Path(os.path.realpath(project.root)).relative_to(top)
        above = [(folder / name).as_posix() for folder in inside.parents for name in _ABOVE]
        self._take([inside.as_posix(), *above] if above else [])
        root = self._copy / inside
        file = root / os.path.relpath(absolute(project.file), project.root)
        if not os.path.lexists(file):
            self._scratch.close()
            raise SgpuError(
                f"the commit `{commit[:12]}` has no `{project.owner}` in the folder of the project",
                hint="leave out `--base`: all of it is new",
                code="no_base",
            )
        self.root, self.file = root, file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    def add(self, path: Path) -> None:
        """Take a file or folder of the repository too, such as the root of some code.

        Args:
            path: where it would lie in the copy.
        """
        path = Path(os.path.normpath(path))
        if path.is_relative_to(self._copy) and not path.is_relative_to(self.root):
            self._take([path.relative_to(self._copy).as_posix()])

    def values(self, files: Iterable[Path]) -> tuple[Path, ...]:
        """The files of values as they are at the commit. One that the commit lacks is new here, and
        left out; but one that git does not keep gives its values to both sides."""
        found = (self._value_file(absolute(file)) for file in files)
        return tuple(file for file in found if file is not None)

    def _value_file(self, file: Path) -> Path | None:
        if not file.is_relative_to(self._top):
            return file
        there = self._copy / file.relative_to(self._top)
        self.add(there)
        if there.is_file():
            return there
        ignored = git_text(self._top, "check-ignore", "--quiet", "--", os.fspath(file))
        return None if ignored is None else file

    def _take(self, paths: Sequence[str]) -> None:
        """Write the files at or below these paths of the repository; all files for no path."""
        listed = git_text(
            self._top, "ls-tree", "-r", "-z", "--full-tree", self._commit, "--", *paths
        )
        if listed is None:
            raise SgpuError(
                f"git cannot list the files of the commit `{self._commit[:12]}`",
                hint=f"see what `git ls-tree {self._commit[:12]}` says",
                code="no_base",
            )
        blobs = [blob for blob in map(_blob, listed.split("\0")) if blob is not None]
        for blob, content in zip(blobs, self._contents(blobs), strict=True):
            path = self._copy / blob.path
            if os.path.lexists(path) or not path.parent.resolve().is_relative_to(self._copy):
                continue  # a tree that names a path twice could lead out by a link
            path.parent.mkdir(parents=True, exist_ok=True)
            if blob.mode == _LINK:
                path.symlink_to(os.fsdecode(content))
            else:
                path.write_bytes(content)
                path.chmod(_FILE_MODES[blob.mode])

    def _contents(self, blobs: Sequence[_Blob]) -> Iterator[bytes]:
        command = git_command(self._top, "cat-file", "--batch")
        with subprocess.Popen(
            command,
            env=git_environment(self._top),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
            waiting = iter(blobs)
            while some := list(islice(waiting, _AT_ONCE)):
                process.stdin.write(b"".join(f"{blob.id}\n".encode() for blob in some))
                process.stdin.flush()
                for blob in some:
                    head = process.stdout.readline().split()
                    if len(head) != 3:
                        raise SgpuError(
                            f"`{blob.path}` of the commit `{self._commit[:12]}` is not in this "
                            "clone, which is a partial one",
                            hint="clone without `--filter`, or fetch it: "
                            f"`git cat-file -e {blob.id}`",
                            code="no_base",
                        )
                    yield process.stdout.read(int(head[2]) + 1)[:-1]


def _blob(line: str) -> _Blob | None:
    """A line of `git ls-tree`; `None` for a submodule, and for a path that no checkout has."""
    facts, _, path = line.partition("\t")
    words = facts.split()
    parts = path.split("/")
    if len(words) != 3 or (words[0] not in _FILE_MODES and words[0] != _LINK):
        return None
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        return None
    return _Blob(mode=words[0], id=words[2], path=path)
