"""The `backend` block of the kind `folder`."""

from pydantic import Field

from sgpu_decl.config.backend import BackendOptions


class FolderOptions(BackendOptions):
    """Nodes see one shared folder."""

    root: str = Field(description="The shared folder, as this machine and all nodes have it.")
    nodes: int = Field(1, ge=1, description="How many nodes share the ranks of a run.")
