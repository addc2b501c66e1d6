"""A Databricks workspace that runs here: its REST API over HTTP, durable, isolated by token."""

from sgpu_decl.testing.workspace.faults import Effect, Fault
from sgpu_decl.testing.workspace.offers import Capacity, Offers
from sgpu_decl.testing.workspace.server import WorkspaceServer
from sgpu_decl.testing.workspace.tenant import TokenState, User

__all__ = ["Capacity", "Effect", "Fault", "Offers", "TokenState", "User", "WorkspaceServer"]
