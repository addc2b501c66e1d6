"""Where a node finds the paths of the workspace: in a root of its own they lie where the platform
has them; on a machine that allows none, in the tenant's folders."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NodePlaces", "workspace_path"]

_TREES = ("Workspace", "Volumes")
_SCHEME = "dbfs:"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlaces:
    """The folders of one node: `trees` by name, and `local`, its own disk at `/databricks`.
    `rooted` says whether it has a root of its own."""

    trees: Mapping[str, Path]
    local: Path
    rooted: bool

    def on_disk(self, path: str) -> Path:
        """The file behind a path of the workspace.

        Raises:
            ValueError: it is no path of the workspace.
        """
        tree, _, rest = workspace_path(path)[1:].partition("/")
        return self.trees[tree] / rest

    def on_node(self, path: str) -> str:
        """The same path as the node's processes have to name it. Raises ValueError, as
        `on_disk`."""
        return workspace_path(path) if self.rooted else str(self.on_disk(path))

    def local_on_node(self, below: str) -> str:
        """A path on the node's own disk, as its processes have to name it."""
        return f"/databricks/{below}" if self.rooted else str(self.local / below)

    @property
    def folders(self) -> dict[str, str]:
        """What lies where in the node's root."""
        bound = {f"/{name}": str(folder) for name, folder in self.trees.items()}
        return {**bound, "/databricks": str(self.local)}


def workspace_path(path: str) -> str:
    """A path as the workspace writes it: `/Workspace/...` or `/Volumes/...`. Without the first
    folder it is one of `/Workspace`.

    Raises:
        ValueError: it is relative, or leads out of the workspace.
    """
    bare = path.removeprefix(_SCHEME)
    if not bare.startswith("/"):
        raise ValueError(f"'{path}' is not an absolute path")
    clean = posixpath.normpath(bare)
    if ".." in bare.split("/"):
        raise ValueError(f"'{path}' leads out of its folder")
    if clean.split("/")[1] in _TREES:
        return clean
    return f"/Workspace{clean}"
