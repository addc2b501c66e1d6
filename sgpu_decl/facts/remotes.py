"""The repository of a project, as the remotes of its git checkout name it."""

import os
from pathlib import Path, PurePath

from sgpu_decl.facts.checkout import git_text
from sgpu_decl.model.project_home import ProjectHome, repository_of
from sgpu_decl.staging.repository import repository_top

__all__ = ["project_homes"]


def project_homes(root: Path) -> tuple[ProjectHome, ...]:
    """What the project in a folder may be known as, that of the remote `origin` first: a clone of a
    fork may have the original as another remote. None outside of a checkout with a remote that
    other machines can reach."""
    top = repository_top(root)
    if top is None:
        return ()
    listed = git_text(root, "config", "--null", "--get-regexp", r"^remote\..*\.url$") or ""
    urls = dict(item.split("\n", 1) for item in listed.split("\0") if "\n" in item)
    folder = PurePath(os.path.relpath(os.path.realpath(root), top)).as_posix()
    names = sorted(urls, key=lambda key: (key != "remote.origin.url", key))
    found = dict.fromkeys(repository_of(urls[name].strip()) for name in names)
    return tuple(ProjectHome(repository=item, folder=folder) for item in found if item)
