"""What a task of a job's launch left that is a run of the project: its first cause, what ranks
returned, and the end of their log.

The launches of a job share a launch folder. The nodes of a launch are known by the MLflow run of
their attempt, which the platform names for each task and nodes name in their reports.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sgpu_decl.backends.databricks.launching.submit import retries_of
from sgpu_decl.backends.databricks.watching.run_part import RunPart
from sgpu_decl.backends.databricks.watching.run_status import mlflow_runs, run_status
from sgpu_decl.backends.databricks.watching.workspace_logs import WorkspaceLog
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.job import JobLaunch, TaskLaunch
from sgpu_decl.places.file_place import PlaceMissing
from sgpu_decl.rendering.spec import RetrySpec
from sgpu_decl.scratch_folders import scratch_folder

_SHOWN = 2_000  # characters of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """The run that a task launches, and its launch folder."""

    request: LaunchRequest
    folder: str


def with_what_is_left(
    workspace: Workspace, run: StagedRun, launch: JobLaunch, task: TaskLaunch
) -> TaskLaunch:
    """A task of a launch that has ended, with what its ranks left, as far as this user may read
    it."""
    part = RunPart(run_id=int(launch.id), task=task.name, retries=retries_of(run.request.config))
    shown = part.look(workspace.run_cache)
    if shown is None:
        return task
    with scratch_folder("results") as folder:
        results = _Results(workspace, run.folder, folder, shown)
        with suppress(BackendError, PlaceMissing):  # texts that help; the link leads to them
            task = _with_results(workspace, run, shown, results, task)
    log = WorkspaceLog(run.request.ref, workspace, part, ranks=None, follow=False)
    try:
        lines, _ = log.read()
        text = "\n".join(
            line.text if line.rank is None else f"[rank {line.rank}] {line.text}" for line in lines
        )
    except (BackendError, NotFound):
        return task
    return replace(task, output=text[-_SHOWN:] or task.output)


def _with_results(
    workspace: Workspace,
    run: StagedRun,
    shown: Mapping[str, Any],
    results: "_Results",
    task: TaskLaunch,
) -> TaskLaunch:
    record = run.request.record
    retry = asdict(RetrySpec.of(run.request.config.retry))
    status = run_status(record, shown, workspace, run.folder, results, retry)
    task = replace(task, first_cause=status.view.first_cause)
    if status.brought is None:
        return task
    ranks = [(rank.rank, rank.node_rank or 0) for rank in status.view.ranks]
    return replace(task, results=tuple(results.values(status.brought, ranks)))


class _Results(RemoteResults):
    """What the nodes of one task brought back, and those of no other launch of the job."""

    def __init__(
        self, workspace: Workspace, remote: str, local: Path, task: Mapping[str, Any]
    ) -> None:
        super().__init__(workspace.area.files, remote, local, sealed=True)
        self._mlflow_runs = frozenset(mlflow_runs(task, workspace))

    def attempts(self) -> tuple[int, ...]:
        return tuple(
            number
            for number in super().attempts()
            if self.report(number, 0).get("mlflow_run_id") in self._mlflow_runs
        )
