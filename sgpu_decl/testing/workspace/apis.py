"""Which APIs the workspace has. An API is a module with `ROUTES`; one that runs something beside
requests is a `Service`."""

from typing import TYPE_CHECKING, Protocol

from sgpu_decl.testing.workspace import (
    dbfs,
    identity,
    multipart_uploads,
    notifications,
    oauth,
    offers,
    permissions,
    secret_acls,
    secrets,
    telemetry,
    volume_files,
    volumes,
    workspace_files,
)
from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
from sgpu_decl.testing.workspace.execution_room import ExecutionRoom
from sgpu_decl.testing.workspace.routes import Route

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.server import WorkspaceServer

__all__ = ["ROUTES", "Service", "services"]

ROUTES: tuple[Route, ...] = (
    *oauth.ROUTES,
    *identity.ROUTES,
    *workspace_files.ROUTES,
    *volumes.ROUTES,
    *volume_files.ROUTES,
    *multipart_uploads.ROUTES,
    *dbfs.ROUTES,
    *secrets.ROUTES,
    *secret_acls.ROUTES,
    *permissions.ROUTES,
    *notifications.ROUTES,
    *offers.ROUTES,
    *telemetry.ROUTES,
)


class Service(Protocol):
    """Something that lives as long as the server does, and has routes."""

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API."""

    def start(self, server: "WorkspaceServer") -> None:
        """The server listens; what a former server left behind in its tenants is taken up here."""

    def close(self) -> None:
        """The server answers nobody any more."""


def services(server: "WorkspaceServer", execution: ExecutionSettings) -> tuple[Service, ...]:
    """New ones, for one server."""
    return (ExecutionRoom(server, execution),)
