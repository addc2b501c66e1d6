"""What lies in the workspace's tree: folders, files and notebooks, with their ids.

Contents are files below `Workspace` in the tenant's folder, so that what runs on a node can read
and write them; what files do not say of themselves (ids, languages) is in a table.
"""

from pathlib import Path

from sgpu_decl.testing.workspace.body import Body
from sgpu_decl.testing.workspace.clock import changed
from sgpu_decl.testing.workspace.routes import ApiError, JsonObject
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.trees import located, normal, removed

__all__ = ["WorkspaceObjects", "not_there"]

_TABLE = "workspace_files"


def not_there(path: str) -> ApiError:
    """A path that leads nowhere."""
    return ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({path}) doesn't exist.")


class WorkspaceObjects:
    """The tree of one tenant. Paths are normal, and without `/Workspace` in front."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._root = tenant.tree("Workspace")
        self._table = tenant.table(_TABLE)
        for path in (tenant.home, "/Shared"):
            located(self._root, path).mkdir(parents=True, exist_ok=True)

    @staticmethod
    def path_of(given: str) -> str:
        """The path that is meant: with and without `/Workspace` it is the same."""
        path = normal(given)
        return path.removeprefix("/Workspace") or "/" if _in_workspace(path) else path

    def file(self, path: str) -> Path:
        """Where it lies on disk."""
        return located(self._root, path)

    def is_there(self, path: str) -> bool:
        """Whether anything lies there."""
        return self.file(path).exists()

    def info(self, path: str) -> JsonObject:
        """What the API says of an object. Raises ApiError, 404."""
        file = self.file(path)
        try:
            stat = file.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise not_there(path) from None
        kept = self._remembered(path)
        info: JsonObject = {"path": path, "object_id": kept["object_id"]}
        info["resource_id"] = str(kept["object_id"])
        if file.is_dir():
            return info | {"object_type": "DIRECTORY"}
        if "language" in kept:
            return info | {"object_type": "NOTEBOOK", "language": kept["language"]}
        return info | {
            "object_type": "FILE",
            "created_at": kept["created_at"],
            "modified_at": changed(stat),
            "size": stat.st_size,
        }

    def children(self, path: str) -> list[JsonObject]:
        """A folder's objects by name, or the object itself. Raises ApiError, 404."""
        if not self.file(path).is_dir():
            return [self.info(path)]
        names = sorted(child.name for child in self.file(path).iterdir())
        return [self.info(f"{path.rstrip('/')}/{name}") for name in names]

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it. Raises ApiError, 400, where one of them is none."""
        with self._tenant.lock:
            try:
                self.file(path).mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                message = f"{path} already exists and it is not a folder"
                raise ApiError(400, "RESOURCE_ALREADY_EXISTS", message) from None

    def write(self, path: str, content: Body, language: str | None) -> None:
        """Put a file there, or with a language a notebook; over what was there."""
        with self._tenant.transaction():
            content.move_to(self.file(path))
            kept = self._remembered(path)
            kept.pop("language", None)
            self._table.put(path, kept | ({"language": language} if language else {}))

    def delete(self, path: str, incoming: Path) -> None:
        """Delete an object with all that is in it."""
        with self._tenant.transaction():
            removed(self.file(path), incoming)
            self._table.delete(path)
            for below, _ in self._table.items(f"{path}/"):
                self._table.delete(below)

    def _remembered(self, path: str) -> JsonObject:
        """The row of an object; a new one for what was made behind the API's back."""
        with self._tenant.transaction():
            row = self._table.get(path)
            if row is None:
                made = changed(self.file(path).stat())
                row = {"object_id": self._tenant.next_id(), "created_at": made}
                self._table.put(path, row)
            return row


def _in_workspace(path: str) -> bool:
    return path == "/Workspace" or path.startswith("/Workspace/")
