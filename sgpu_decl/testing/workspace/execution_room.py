"""The part of the workspace that runs things: jobs, runs, AI training and MLflow, as one
service."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace import run_exports, training_api
from sgpu_decl.testing.workspace.artifacts import ArtifactsApi
from sgpu_decl.testing.workspace.executing.doom import Doom, Misnomer
from sgpu_decl.testing.workspace.executing.endings import AttemptEnding
from sgpu_decl.testing.workspace.executing.gang import NodeDeath
from sgpu_decl.testing.workspace.executing.runner import Runner
from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
from sgpu_decl.testing.workspace.experiments import ExperimentsApi
from sgpu_decl.testing.workspace.jobs import JobsApi
from sgpu_decl.testing.workspace.mlflow_names import Tracking
from sgpu_decl.testing.workspace.mlflow_server import MlflowServer
from sgpu_decl.testing.workspace.repairs import RepairsApi
from sgpu_decl.testing.workspace.routes import Request, Response, Route, invalid
from sgpu_decl.testing.workspace.runs import RunsApi
from sgpu_decl.testing.workspace.signed_links import Signer

if TYPE_CHECKING:
    from sgpu_decl.testing.workspace.server import WorkspaceServer

__all__ = ["ExecutionRoom"]


class ExecutionRoom:
    """Lives as long as the server. What was active when a server was killed ends when the next one
    starts on the same folder."""

    def __init__(self, server: "WorkspaceServer", settings: ExecutionSettings) -> None:
        self.mlflow = MlflowServer(server.root / "mlflow")
        tracking = Tracking(self.mlflow)
        self.runner = Runner(
            settings,
            tracking,
            scratch=server.root / "scratch",
            url=lambda: server.url,
            terms=lambda: server.terms,
            capacity=server.capacity,
        )
        self._routes = (
            *JobsApi(self.runner).routes,
            *RunsApi(self.runner).routes,
            *RepairsApi(self.runner).routes,
            *run_exports.ROUTES,
            *ArtifactsApi(tracking, Signer()).routes,
            *ExperimentsApi(tracking).routes,
            *training_api.ROUTES,
            Route("POST", "/__testserver/lose-node", self._lose_node),
        )

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API."""
        return self._routes

    def start(self, server: "WorkspaceServer") -> None:
        """Take up what a former server left."""
        server.faults.register("lose_node", self._doom)
        server.faults.register("misname", self._misname)
        for tenant in server.tenants.all():
            self.runner.recover(tenant)

    def close(self) -> None:
        """Kill what runs, and end MLflow."""
        self.runner.close()
        self.mlflow.close()

    def _lose_node(self, request: Request) -> Response:
        """Let a node of a running attempt vanish: `{run_id, node}`."""
        run_id, node = request.integer("run_id"), request.integer("node", 0)
        if not self.runner.lose_node(request.tenant, run_id, node):
            raise invalid(f"Run {run_id} has no running node {node}.")
        return Response(json={})

    def _doom(self, request: Request, arguments: Mapping[str, Json]) -> None:
        """The hook `lose_node` of a fault on `runs/submit`: `node` of the run's `attempt` vanishes
        after it has written `after_lines` lines."""
        death = NodeDeath(
            node=int(str(arguments.get("node", 0))),
            after_lines=int(str(arguments.get("after_lines", 0))),
        )
        attempt = int(str(arguments.get("attempt", 0)))
        self.runner.doom(request.tenant, Doom(attempt=attempt, death=death))

    def _misname(self, request: Request, arguments: Mapping[str, Json]) -> None:
        """The hook `misname` of a fault on `runs/submit`: what fails in the run's `attempt`, or in
        all of them, gets the name of another `ending` and a `message`; with `at_once`, before it
        gets any nodes."""
        attempt = arguments.get("attempt")
        misnomer = Misnomer(
            ending=AttemptEnding(str(arguments["ending"])),
            message=str(arguments.get("message", "")),
            at_once=bool(arguments.get("at_once")),
        )
        number = None if attempt is None else int(str(attempt))
        self.runner.doom(request.tenant, Doom(attempt=number, misnomer=misnomer))
