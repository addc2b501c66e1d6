"""A Databricks workspace that runs here: its REST API over HTTP, durable, isolated by token.

It is for tests and for users' CI; nothing of the engine imports it. One module per API declares its
`ROUTES`, and `apis` lists them; what runs beside requests is a `Service` there. A request goes
through `wire` (HTTP) and `dispatch` (who asks, which faults befall it, which handler).

A *tenant* is what one bearer token sees: a folder with the trees `Workspace`, `Volumes` and `dbfs`
as real files, so that nodes can use them, and a SQLite file with small tables of JSON. Everything
is durable: a server that is started again on the same root goes on. What was active when a server
ended is ended by the next one as an internal error. Faults are rules over `METHOD /path`; eventual
consistency is a snapshot that some reads are answered from. A test can set the clock wrong.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Capacity",
    "Effect",
    "ExecutionSettings",
    "Fault",
    "FederationPolicy",
    "Offers",
    "TokenState",
    "User",
    "WorkspaceServer",
]

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
    from sgpu_decl.testing.workspace.faults import Effect, Fault
    from sgpu_decl.testing.workspace.oauth import FederationPolicy
    from sgpu_decl.testing.workspace.offers import Capacity, Offers
    from sgpu_decl.testing.workspace.server import WorkspaceServer
    from sgpu_decl.testing.workspace.tenant import TokenState, User
else:
    _HOMES = {
        "ExecutionSettings": "executing.settings",
        "Effect": "faults",
        "Fault": "faults",
        "FederationPolicy": "oauth",
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
