"""See `backends.platform_checks.PlatformChecks`."""

from collections.abc import Callable, Generator

from sgpu_decl.backends.databricks.conformance.free_checks import free_findings
from sgpu_decl.backends.databricks.conformance.node_probe import probe_cost, probe_findings
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.model.doctor_finding import Finding
from sgpu_decl.model.probe import ProbeCost, ProbeOptions


class WorkspaceChecks:
    """The checks of one workspace, in its staging folder."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def host(self) -> str:
        return self._workspace.connection.host

    def free(self) -> Generator[Finding, None, None]:
        return free_findings(self._workspace)

    def cost(self, options: ProbeOptions) -> ProbeCost:
        return probe_cost(options)

    def probe(
        self, options: ProbeOptions, note: Callable[[str], None]
    ) -> Generator[Finding, None, None]:
        self._workspace.connection.await_answer()
        yield from probe_findings(self._workspace, options, note)
