"""Giving back what launches took in a workspace: their folders, and what no other launch needs."""

from sgpu_decl.backends.databricks.handle import Handle
from sgpu_decl.backends.databricks.workspace import Workspace

__all__ = ["free_launch"]


def free_launch(workspace: Workspace, handle: Handle) -> None:
    """Delete a launch folder; harmless where it is gone.

    Raises:
        BackendError: the workspace does not let us.
    """
    workspace.files.delete(handle.folder)
