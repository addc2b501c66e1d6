"""The Databricks backend: launch folders in a workspace, and its Jobs API."""

from functools import partial
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.databricks.conformance.workspace_checks import WorkspaceChecks
from sgpu_decl.backends.databricks.jobs.job_folders import JobFolders
from sgpu_decl.backends.databricks.jobs.workspace_jobs import WorkspaceJobs
from sgpu_decl.backends.databricks.launching.databricks_launcher import DatabricksLauncher
from sgpu_decl.backends.databricks.launching.workspace_launches import WorkspaceLaunches
from sgpu_decl.backends.databricks.options import DatabricksOptions
from sgpu_decl.backends.databricks.planning.databricks_survey import DatabricksSurvey
from sgpu_decl.backends.databricks.watching.databricks_attempts import DatabricksAttempts
from sgpu_decl.backends.databricks.workspace import Workspaces
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.config.backend import BackendOptions

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.job_backend import JobBackend
    from sgpu_decl.backends.platform_checks import PlatformChecks


def open_databricks(context: "BackendContext") -> Backend:
    """The backend of a project and target in workspaces. The SDK is imported when the first one is
    needed."""
    workspaces = Workspaces()
    pending_gc = PendingGc(context.state_dir / "databricks-unfreed.json")

    def named_hosts(owner: str) -> list[str | None] | None:
        if not context.shared_state():
            return None
        blocks = context.backend_blocks(owner)
        written = [block.host for block in blocks if isinstance(block, DatabricksOptions)]
        return [*written, *launch_hosts.all()]

    launch_hosts = LaunchHosts(context.state_dir / "databricks-hosts.json")
    workspaces.guard(named_hosts)
    launches = WorkspaceLaunches(context.layout, workspaces)
    attempts = DatabricksAttempts(launches)
    launcher = DatabricksLauncher(context, launches, attempts, workspaces, launch_hosts)

    def jobs(block: BackendOptions) -> "JobBackend":
        workspace = workspaces.of(block)
        gc_due = partial(pending_gc.add, workspace.key)
        folders = JobFolders(workspace.area, launcher.uploader, context.project, gc_due)
        return WorkspaceJobs(workspace, folders, launch_hosts)

    def require_named(block: BackendOptions, owner: str) -> None:
        workspaces.recorded(block, owner, record="job")

    def checks(block: BackendOptions) -> "PlatformChecks":
        return WorkspaceChecks(workspaces.of(block))

    def close() -> None:
        attempts.close()
        workspaces.close()

    return Backend(
        survey=DatabricksSurvey(workspaces, context.pythons),
        launcher=launcher,
        attempts=attempts,
        storage=RemoteStorage(
            context.layout, attempts, pending_gc, lambda key: workspaces.with_key(key).area
        ),
        jobs=jobs,
        require_named=require_named,
        checks=checks,
        close=close,
    )
