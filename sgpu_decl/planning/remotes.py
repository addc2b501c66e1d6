"""The repository of a project, as the remotes of its git checkout name it."""

import os
from pathlib import Path, PurePath

from sgpu_decl.code.repository import git_text, repository_top
from sgpu_decl.model.project_home import ProjectIdentity, repository_of


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
