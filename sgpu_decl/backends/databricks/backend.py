"""The Databricks backend: launch folders in a workspace, and its Jobs API."""

from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.databricks.launching.launch_handles import LaunchHandles
from sgpu_decl.backends.databricks.launching.launcher import DatabricksLauncher
from sgpu_decl.backends.databricks.planning.survey import DatabricksSurvey
from sgpu_decl.backends.databricks.watching.attempts import DatabricksAttempts
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.remote.pending_gc import PendingGc
from sgpu_decl.backends.remote.storage import RemoteStorage
from sgpu_decl.config.backend import BackendOptions

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.databricks.jobs.folders import JobFolders
    from sgpu_decl.backends.job_backend import JobBackend
    from sgpu_decl.backends.platform_checks import PlatformChecks
    from sgpu_decl.backends.remote.uploader import Uploader


def open_databricks(context: "BackendContext") -> Backend:
    """The backend of a project and target in workspaces. The SDK is imported when the first one is
    needed."""
    layout = context.layout
    workspaces = Workspaces()
    pending_gc = PendingGc(context.state_dir / "databricks-unfreed.json")
    handles = LaunchHandles(layout, workspaces)

    @cache
    def uploader() -> "Uploader":
        from sgpu_decl.backends.databricks.launching.node_program import WorkspaceNodes
        from sgpu_decl.backends.remote.uploader import Uploader

        return Uploader(
            context,
            lambda launching: workspaces.of(launching.config.backend).area,
            WorkspaceNodes(),
        )

    def folders(workspace: Workspace) -> "JobFolders":
        from sgpu_decl.backends.databricks.jobs.folders import JobFolders

        return JobFolders(workspace, uploader(), lambda: pending_gc.add(workspace.key))

    def jobs(block: BackendOptions) -> "JobBackend":
        from sgpu_decl.backends.databricks.jobs.workspace_jobs import WorkspaceJobs

        workspace = workspaces.of(block)
        return WorkspaceJobs(workspace, folders(workspace))

    def checks(block: BackendOptions) -> "PlatformChecks":
        from sgpu_decl.backends.databricks.conformance.workspace_checks import WorkspaceChecks

        return WorkspaceChecks(workspaces.of(block))

    attempts = DatabricksAttempts(handles)
    return Backend(
        survey=DatabricksSurvey(workspaces, context.pythons),
        launcher=DatabricksLauncher(
            context.store(), workspaces, handles, attempts, uploader, folders
        ),
        attempts=attempts,
        storage=RemoteStorage(
            layout, attempts, pending_gc, lambda key: workspaces.with_key(key).area
        ),
        jobs=jobs,
        checks=checks,
        close=attempts.close,
    )
