"""Which repository a project belongs to, and where it lies there."""

from sgpu_decl.frozen_dataclass import dataclass

_SCHEMES = ("https", "http", "ssh", "git", "git+ssh")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHome:
    """`repository` is `HOST/PATH`, without credentials; `folder` is that of the project in it, `.`
    for its top."""

    repository: str
    folder: str

    def is_same(self, other: "ProjectHome") -> bool:
        """Whether both are one project. Hosts are not compared: in the URLs of two clones they may
        be a name and an alias of `~/.ssh/config`."""
        mine, theirs = (_path(item.repository) for item in (self, other))
        return (mine, self.folder) == (theirs, other.folder)

    def __str__(self) -> str:
        return self.repository if self.folder == "." else f"{self.repository}, folder {self.folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectIdentity:
    """What tells a project from another one, wherever its checkout lies. `folder` is that of the
    project in its repository; `repositories` are those that the remotes of the checkout name."""

    folder: str
    repositories: tuple[str, ...] = ()

    @property
    def homes(self) -> tuple[ProjectHome, ...]:
        """What the project may be known as in a shared state."""
        return tuple(ProjectHome(repository=one, folder=self.folder) for one in self.repositories)

    def is_same(self, other: "ProjectIdentity") -> bool | None:
        """Whether both are one project; `None` where a checkout without remotes cannot tell."""
        if self.folder != other.folder:
            return False
        if not self.repositories or not other.repositories:
            return None
        return any(mine.is_same(theirs) for mine in self.homes for theirs in other.homes)


def repository_of(url: str) -> str | None:
    """The repository that the URL of a git remote names; None for a path of this machine, which
    means nothing on others.

    Source: https://git-scm.com/docs/git-clone#_git_urls
    """
    if "://" in url:
        from urllib.parse import urlsplit

        try:
            split = urlsplit(url)
            host, path = split.hostname, split.path
        except ValueError:
            return None
        if split.scheme.lower() not in _SCHEMES or not host:
            return None
    else:
        before, colon, path = url.partition(":")
        if not colon or "/" in before:
            return None
        host = before.rpartition("@")[2].lower()
    path = path.strip("/").removesuffix(".git")
    return f"{host}/{path}" if host and path else None


def _path(repository: str) -> tuple[str, ...]:
    """What one repository has in all of its URLs. In those of Azure DevOps, the way to it differs
    (https://learn.microsoft.com/azure/devops/repos/git/use-ssh-keys-to-authenticate)."""
    parts = repository.casefold().split("/")[1:]
    return tuple(part for part in parts if part not in ("v3", "_git"))
