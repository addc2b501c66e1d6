"""The commit, branch and state of a git checkout, for `${git.…}` and for plans; the repository of a
project, as its remotes name it; and what a target with `mode: production` refuses: what no commit
holds."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sgpu_decl.code.repository import git_refusal, git_text, repository_top
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.plan import GitFacts
from sgpu_decl.model.project_home import ProjectIdentity, repository_of
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import Loaded


class Checkout:
    """The git checkout of a project. git is called only for facts that are used, and once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def head(self) -> GitFacts | None:
        """The commit, its branch, and the tree of the project's folder, from one call of git.
        `None` outside of a checkout."""
        return _head(self._root) if _is_checkout(self._root) else None

    @cached_property
    def dirty(self) -> bool | None:
        """Whether a tracked file differs from the commit, `None` where git cannot tell. Filters are
        off, so a filtered file (git LFS) that was touched since the checkout counts as changed."""
        return _dirty(self._root) if _is_checkout(self._root) else None

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """`commit`, `branch` and `dirty` of the checkout, as text; empty outside of one. Where git
        does not answer, `refusal` says why."""
        if self.head is None:
            return {}
        if self.head.commit is None and (refusal := git_refusal(self._root)):
            return {"refusal": refusal}
        return replace(self.head, dirty=self.dirty).of_launch

    @property
    def commit(self) -> str | None:
        """The commit alone; None outside of a checkout."""
        return None if self.head is None else self.head.commit

    def changes(self, folders: Iterable[Path]) -> tuple[Path, ...] | None:
        """The files in these folders that differ from the commit, that git does not know, or that
        are gone, sorted; none outside of a checkout, and `None` if git does not answer. A submodule
        with changes stands for them."""
        found: set[Path] = set()
        for folder in folders:
            changes = _changes(folder)
            if changes is None:
                return None
            found.update(changes)
        return tuple(sorted(found))


def _changes(folder: Path) -> Iterable[Path] | None:
    top = repository_top(folder)
    if top is None:
        return ()
    off = _filters_off(folder)
    words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    own = (*words, "--ignore-submodules=dirty", "--", ".")
    listed = git_text(folder, *own, off=off) if off is not None else None
    if listed is None:
        return None
    files = [top / line[3:] for line in listed.split("\0") if line]
    return [*files, *(path for path in _submodules(folder) if _dirty(path) is not False)]


def _head(root: Path) -> GitFacts:
    words = ("rev-parse", "HEAD", "HEAD:./", "--abbrev-ref", "HEAD")
    lines = (git_text(root, *words) or "").splitlines()
    if len(lines) == 3:
        return GitFacts(commit=lines[0], tree=lines[1], branch=lines[2])
    # The commit lacks the folder of the project, or there is no commit yet.
    lines = (git_text(root, "rev-parse", "HEAD", "--abbrev-ref", "HEAD") or "").splitlines()
    return GitFacts(commit=lines[0], branch=lines[1]) if len(lines) == 2 else GitFacts()


def _is_checkout(root: Path) -> bool:
    return repository_top(root) is not None


def _dirty(root: Path) -> bool | None:
    """Whether a tracked file differs from the commit, those of submodules included."""
    off = _filters_off(root)
    if off is None:
        return None
    # git would use the configuration of a submodule, filters included: submodules are checked
    # below.
    words = ("status", "--porcelain", "--untracked-files=no", "--no-renames")
    changes = git_text(root, *words, "--ignore-submodules=dirty", off=off)
    if changes != "":
        return None if changes is None else True
    return any(_dirty(path) for path in _submodules(root))


def _submodules(root: Path) -> list[Path]:
    top = repository_top(root)
    if top is None or not os.path.isfile(top / ".gitmodules"):
        return []
    index = git_text(top, "ls-files", "--stage", "-z") or ""
    paths = [line.split("\t", 1)[1] for line in index.split("\0") if line.startswith("160000 ")]
    return [Path(top, path) for path in paths if os.path.exists(os.path.join(top, path, ".git"))]


def _filters_off(root: Path) -> tuple[str, ...] | None:
    """Options that switch every configured filter off; `None` if the name of one cannot be written
    in an option."""
    keys = git_text(root, "config", "--null", "--name-only", "--get-regexp", r"^filter\.") or ""
    names = {key.partition(".")[2].rpartition(".")[0] for key in keys.split("\0") if key}
    if any("=" in name or "\n" in name for name in names):
        return None
    return tuple(
        word
        for name in sorted(names)
        for setting in ("clean=", "process=", "smudge=", "required=false")
        for word in ("-c", f"filter.{name}.{setting}")
    )


def project_identity(root: Path) -> ProjectIdentity | None:
    """Where the project in a folder lies in its repository, and what that may be known as, the
    remote `origin` first: a clone of a fork may have the original as another remote. Remotes that
    other machines cannot reach do not count. None outside of a checkout."""
    top = repository_top(root)
    if top is None:
        return None
    listed = git_text(root, "config", "--null", "--get-regexp", r"^remote\..*\.url$") or ""
    urls = dict(item.split("\n", 1) for item in listed.split("\0") if "\n" in item)
    folder = PurePath(os.path.relpath(os.path.realpath(root), top)).as_posix()
    names = sorted(urls, key=lambda key: (key != "remote.origin.url", key))
    found = dict.fromkeys(repository_of(urls[name].strip()) for name in names)
    return ProjectIdentity(folder=folder, repositories=tuple(item for item in found if item))


_SHOWN = 5


def production_checks(
    project: Project,
    loaded: "Loaded",
    checkout: "Checkout",
    planned: Callable[[Address], bool],
) -> Iterator[Diagnostic]:
    """Find `--set` options, and files of the project or of the code of what is planned that differ
    from the commit or that git does not know. Outside of a git checkout, nothing is found about
    files."""
    if not loaded.production:
        return
    for path, _ in project.location.sets:
        yield Diagnostic(
            code="set_in_production",
            summary=f"`--set {path}` changes a target with `mode: production` for one command",
            place=Place(f"--set {path}", 1, 1),
            hint="write it into the file and commit it, or use a variable and `--var`",
        )
    assert project.file is not None  # noqa: S101  it was read
    folder = absolute(project.file).parent
    by_jobs = {job.config.run for job in loaded.jobs if planned(job.address)}
    roots = {
        (folder / (run.config.code.root or ".")).resolve()
        for run in loaded.runs
        if planned(run.address) or run.address.name in by_jobs
    }
    changed = checkout.changes({project.root, *roots})
    if changed is None or changed:
        yield _uncommitted(changed, project.root)


def _uncommitted(changed: tuple[Path, ...] | None, root: Path) -> Diagnostic:
    if changed is None:
        refusal = git_refusal(root)
        return Diagnostic(
            code="uncommitted_changes",
            summary="the target has `mode: production`, and git does not say whether the checkout "
            "differs from its commit",
            place=None,
            hint=f"git says: {refusal}" if refusal else "see what `git status` says here",
        )
    names = [os.path.relpath(path) for path in changed]
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return Diagnostic(
        code="uncommitted_changes",
        summary="the target has `mode: production`, and the checkout differs from its commit: "
        f"{shown}{rest}",
        place=None,
        hint="commit these files, let `.gitignore` name them, or use a clean checkout",
    )
