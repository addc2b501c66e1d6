"""Attempts in a workspace: its Jobs API, and what nodes brought back."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.base import Elsewhere, LogReader, NoLog
from sgpu_decl.backends.databricks.api.sdk_errors import FINAL, without_refusals
from sgpu_decl.backends.databricks.launching.submit import (
    ENDING,
    LONGEST,
    ended_early,
    retries_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.launching.workspace_launches import WorkspaceLaunches
from sgpu_decl.backends.databricks.launching.workspace_mlflow import write_metadata
from sgpu_decl.backends.databricks.watching.run_cache import OFTEN
from sgpu_decl.backends.databricks.watching.run_part import RunPart, run_part
from sgpu_decl.backends.databricks.watching.run_status import (
    is_settled,
    missing_run_status,
    mlflow_link,
    mlflow_runs,
    run_status,
)
from sgpu_decl.backends.databricks.watching.termination import state_of
from sgpu_decl.backends.databricks.watching.workspace_logs import WorkspaceLog
from sgpu_decl.backends.databricks.watching.workspace_metrics import WorkspaceMetrics
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.remote.launching.launch_hosts import NOT_NAMED
from sgpu_decl.backends.remote.launching.remote_reference import reference_facts
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.tracking.last_metrics import UnreadMetrics

if TYPE_CHECKING:
    from sgpu_decl.tracking.last_metrics import MetricSource

_MANY = 4  # runs that it is worth to list
_LISTED_FOR = 10.0  # seconds for which a list counts
_REFUSED, _UNREACHABLE = "permission_denied", "host_unreachable"
_NO_LOGIN = frozenset({"host_differs", "no_credentials", "no_profile", "no_workspace"})


class DatabricksAttempts(RemoteAttempts):
    """Markers have the id of the run that a launch became (`run_id`), when it was `submitted`, in
    seconds of the epoch by the workspace's clock, what its MLflow runs are to say (`mlflow`), and
    which task of the run the attempt is, if the run has several (`task`, `after`; see `RunPart`).
    This machine remembers to which user the workspace has shown the run since (`seen_by`), and of
    each MLflow run that was written why it does not say so, if that failed for good (`mlflow RUN`).

    That a launch or its run is not to be seen is a sign that it is gone only in the workspace that
    its reference names, and only to a user who would see it.
    """

    poll_seconds = OFTEN

    _launches: WorkspaceLaunches

    def __init__(self, launches: WorkspaceLaunches) -> None:
        super().__init__(launches)
        self._settled: set[AttemptRef] = set()
        self._unlisted: frozenset[int] = frozenset()  # runs that this user does not see
        self._listed_at = float("-inf")
        self._mlflow_problems: dict[str, str] = {}  # by the id of an MLflow run

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        self._list_runs(records)
        return super().look(records)

    def _list_runs(self, records: Sequence[LaunchRecord]) -> None:
        """Learn of many runs of other users at once which ones this user does not see. That such a
        run is not listed is no sign that it is gone: it is hidden, as one that may not be read."""
        if time.monotonic() - self._listed_at < _LISTED_FOR:
            return
        self._listed_at, self._unlisted = time.monotonic(), frozenset()
        foreign: dict[Workspace, set[int]] = {}
        for record in records:
            facts, known = _place(record), self._launches.memory.get(record)
            if "run_id" not in facts or known.get("ended"):
                continue
            with suppress(BackendError):  # the look at the attempt says so
                workspace = self._workspace(record)
                if workspace.user in (facts["user"], known.get("seen_by")):
                    continue
                if workspace.identity.is_workspace_of(facts):
                    foreign.setdefault(workspace, set()).add(int(facts["run_id"]))
        for workspace, runs in foreign.items():
            if len(runs) >= _MANY:
                with suppress(BackendError):  # they are asked for one by one
                    seen = workspace.run_cache.listed(most=2 * len(runs))
                    self._unlisted |= runs - seen if seen is not None else frozenset()

    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        if "run_id" not in marker:
            staging = AttemptState.STAGING
            view = AttemptView(ref=record.ref, backend=record.backend, state=staging)
            return RemoteStatus(view=view)
        workspace, memory = self._workspace(record), self._launches.memory
        part = self._part(record, marker)
        run = part.look(workspace.run_cache)
        seen = memory.get(record).get("seen_by") == workspace.user
        if run is None:
            return missing_run_status(record, marker, workspace, seen=seen)
        if not seen:  # from now on it is deleted if it is not shown
            memory.remember(record, seen_by=workspace.user)
        status = self._run_status(record, run, workspace)
        return part.explained(status, workspace.run_cache)

    def barrier(self, record: LaunchRecord) -> Elsewhere | None:
        facts = _place(record)
        workspace = self._workspace(record)
        if not facts:
            return None
        if facts["workspace"] is None and facts["host"] != workspace.connection.host:
            return self._elsewhere(record)  # without a connection
        if not workspace.identity.is_workspace_of(facts):
            return self._elsewhere(record)
        if facts["user"] == workspace.user:
            return None
        return self._hidden(record, workspace)

    def _hidden(self, record: LaunchRecord, workspace: Workspace) -> Elsewhere | None:
        """What the workspace may hide of an attempt from a user who did not launch it."""
        unlisted = _place(record).get("run_id")
        if unlisted in self._unlisted:
            return self._hidden_from(workspace.user, record, f"does not see the run {unlisted}")
        folder, started = self._launches.folder(record), self._launches.run(record)
        if not started:
            # In a folder that is there, all is to be seen (evidence: D4).
            root = workspace.area.layout.root_around(folder)
            if self._launches.marker(record) is None and not workspace.area.files.list(root):
                return self._hidden_from(workspace.user, record, f"does not see `{folder}`")
            return None
        run_id = started["run_id"]
        run = self._part(record, started).look(workspace.run_cache)
        if run is None and self._launches.memory.get(record).get("seen_by") != workspace.user:
            return self._hidden_from(workspace.user, record, f"does not see the run {run_id}")
        if run is not None and state_of(run) is None and self._launches.marker(record) is None:
            words = f"does not see `{folder}`, which says how it ended"
            return replace(self._hidden_from(workspace.user, record, words), ended=True)
        return None

    def time_limit(self, record: LaunchRecord) -> float:
        config = self._launches.config(record)
        if config.after or config.on_active == "queue":
            return LONGEST + ENDING
        return timeout_of(config, attempts=1 + retries_of(config)) + ENDING

    def refused(self, record: LaunchRecord, error: BackendError) -> Elsewhere | None:
        if error.code == NOT_NAMED:
            return Elsewhere(reason=error.message, hint=error.hint or "")
        if not _place(record):
            return None
        if error.code in _NO_LOGIN:
            return self._elsewhere(record, error.message)
        if error.code == _UNREACHABLE:
            return _unanswered(record, error.message)
        if error.code != _REFUSED:
            return None
        user = self._workspace(record).user
        return self._hidden_from(user, record, f"may not look: {error.message}")

    def _hidden_from(self, user: str, record: LaunchRecord, why: str) -> Elsewhere:
        """That a workspace hides an attempt from a user, who does not see it for this reason."""
        elsewhere = self._elsewhere(record, f"`{user}` {why}")
        hint = f"{elsewhere.hint}. `permissions` of the run, with `level: view`, let `{user}` see "
        return replace(elsewhere, hidden_from=user, hint=f"{hint}the next attempts")

    def _elsewhere(self, record: LaunchRecord, why: str = "") -> Elsewhere:
        """That an attempt cannot be asked: where it is, who launched it, and `why` not."""
        place, folder = _place(record), self._launches.folder(record)
        run = f", as the run {place['run_id']}" if "run_id" in place else ""
        did = "launched" if run else "began to launch"
        launched = f"`{place['user']}` {did} it in {place['host']}{run}, from `{folder}`"
        return Elsewhere(
            reason=f"{launched}; {why}" if why else launched,
            hint=f"give this command there, as `{place['user']}` or as a user who may see the run "
            "and that folder. If it certainly does not run, "
            f"`sgpu state rm {record.ref.address}` removes it from the state",
        )

    def without_folder(self, record: LaunchRecord) -> RemoteStatus | None:
        """A run that goes on does so without its folder, too."""
        started = self._launches.run(record)
        if not started:
            return None
        workspace = self._workspace(record)
        run = self._part(record, started).look(workspace.run_cache)
        if run is None or state_of(run) is None:
            return None
        return self._run_status(record, run, workspace)

    def _run_status(
        self, record: LaunchRecord, run: Mapping[str, Any], workspace: Workspace
    ) -> RemoteStatus:
        launches = self._launches
        folder, results = launches.folder(record), launches.results(record)
        return run_status(record, run, workspace, folder, results, launches.retry(record))

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views, by_ref = self.look(records), {record.ref: record for record in records}
        described = self._looks.map(
            lambda context, ref: context.run(self._described, by_ref[ref], views[ref]),
            [copy_context() for _ in views],
            views,
        )
        return dict(zip(views, described, strict=True))

    def metric_source(self, record: LaunchRecord, link: Mapping[str, Json]) -> "MetricSource":  # noqa: ARG002  the protocol's
        place = _place(record)
        try:
            workspace = self._workspace(record)
        except BackendError as error:
            return UnreadMetrics(error.message)
        return WorkspaceMetrics(
            workspace=workspace,
            lineage=record.lineage,
            host=place.get("host"),
            workspace_id=place.get("workspace"),
        )

    def cancel_doomed(self, records: Sequence[LaunchRecord]) -> None:
        for record in records:
            if record.ref in self._settled or self._launches.memory.get(record).get("ended"):
                continue
            if self.elsewhere(record) is not None:
                continue
            marker = self._launches.run(record)
            workspace = self._workspace(record)
            if not marker:
                continue
            run = self._part(record, marker).look(workspace.run_cache)
            if run is None:
                continue
            for run_id in mlflow_runs(run, workspace):
                self._write_metadata(record, run_id)
            results, retry = self._launches.results(record), self._launches.retry(record)
            if not is_settled(run, results, retry):
                continue

            self._settled.add(record.ref)
            if ended_early(self._launches.config(record)):
                with suppress(BackendError):  # the user may not be allowed to
                    self.cancel(record)

    def cancel(self, record: LaunchRecord) -> None:
        """See `Launcher.cancel`. Raises BackendError: the workspace does not answer, or does not
        allow it, or is another one, where the id of the run means something else."""
        if (elsewhere := self.elsewhere(record)) is not None:
            raise BackendError(
                f"`{record.ref}` cannot be stopped from here: {elsewhere.reason}",
                hint=elsewhere.hint,
                code="launched_elsewhere",
            )
        marker = self._launches.run(record)
        if not marker or self._launches.memory.get(record).get("ended"):
            return
        workspace = self._workspace(record)
        run_id = self._part(record, marker).cancelled_id(workspace.run_cache)
        if run_id is not None:
            workspace.connection.tell_unless_gone(
                f"cancelling `{record.ref}`",
                "/api/2.2/jobs/runs/cancel",
                {"run_id": run_id},
                look="/api/2.2/jobs/runs/get",
            )

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        marker = self._launches.run(record)
        if not marker:
            return NoLog()
        workspace = self._workspace(record)
        part = self._part(record, marker)
        return WorkspaceLog(record.ref, workspace, part, ranks=ranks, follow=follow)

    def _part(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RunPart:
        # Of a run with one task, the platform itself says whether it goes on.
        joined = "task" in marker
        return run_part(marker, retries_of(self._launches.config(record)) if joined else 0)

    def _workspace(self, record: LaunchRecord) -> Workspace:
        return self._launches.workspace(record)

    def _described(self, record: LaunchRecord, view: AttemptView) -> AttemptView:
        """The view with its MLflow run, after the metadata was written to that; if it could not be,
        the links say so."""
        if view.state is AttemptState.RUNNING:
            view = replace(view, links={**view.links, **self._running_link(record)})
        link = view.links.get("mlflow")
        if not isinstance(link, Mapping):
            return view
        problem = self._write_metadata(record, str(link["run_id"]))
        links = {**view.links, "mlflow": {**link, "undescribed": problem}}
        return replace(view, links=links) if problem else view

    def _running_link(self, record: LaunchRecord) -> Mapping[str, Json]:
        """The link to the MLflow run of an attempt that runs, if the platform names it yet."""
        workspace, started = self._workspace(record), self._launches.run(record)
        link: Mapping[str, Json] = {}
        with without_refusals():
            run = self._part(record, started).look(workspace.run_cache) if started else None
            if run is not None:
                link = mlflow_link(run, workspace)
        return link

    def _write_metadata(self, record: LaunchRecord, run_id: str) -> str:
        """Write the metadata to an MLflow run, once; return why that failed, if so."""
        metadata = (self._launches.marker(record) or {}).get("mlflow")
        if not metadata:
            return ""
        memory, fact = self._launches.memory, f"mlflow {run_id}"
        problem: str | None = memory.get(record).get(fact, self._mlflow_problems.get(run_id))
        if problem is not None:
            return problem
        problem = ""
        try:
            write_metadata(self._workspace(record).connection, run_id, metadata)
        except BackendError as error:
            problem = self._mlflow_problems[run_id] = error.message
            if error.code not in FINAL:
                return problem  # the next call of the command line may get further
        memory.remember(record, **{fact: problem})
        return problem


def _unanswered(record: LaunchRecord, why: str) -> Elsewhere:
    """That the workspace of an attempt does not answer now, and maybe never will again."""
    place = _place(record)
    run = f" as the run {place['run_id']}" if "run_id" in place else ""
    return Elsewhere(
        reason=f"`{place['user']}` launched it in {place['host']}{run}; {why}",
        hint="give this command where that workspace can be reached. If it is gone for good, "
        f"`sgpu state rm {record.ref.address}` removes the run from the state and stops nothing",
        retryable=True,
    )


def _place(record: LaunchRecord) -> Mapping[str, Any]:
    """Where a launch was begun, and by whom; empty for a record that does not say it."""
    facts = reference_facts(record)
    return facts if "host" in facts else {}
