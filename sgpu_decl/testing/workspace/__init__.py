"""A Databricks workspace that runs here: its REST API over HTTP, durable, isolated by token."""

from typing import TYPE_CHECKING

__all__ = [
    "Capacity",
    "Effect",
    "ExecutionSettings",
    "Fault",
    "Offers",
    "TokenState",
    "User",
    "WorkspaceServer",
]

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
    from sgpu_decl.testing.workspace.faults import Effect, Fault
    from sgpu_decl.testing.workspace.offers import Capacity, Offers
    from sgpu_decl.testing.workspace.server import WorkspaceServer
    from sgpu_decl.testing.workspace.tenant import TokenState, User
else:
    _HOMES = {
        "ExecutionSettings": "executing.settings",
        "Effect": "faults",
        "Fault": "faults",
        "Capacity": "offers",
        "Offers": "offers",
        "WorkspaceServer": "server",
        "TokenState": "tenant",
        "User": "tenant",
    }

    def __getattr__(name: str) -> object:
        """Load the server when it is looked at: what runs on nodes is below this package too."""
        if name not in _HOMES:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`", name=name)
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
