"""Launches on a Ray cluster: staged in a launch folder, and submitted to its Jobs API."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import ForcedStop
from sgpu_decl.backends.launch_request import LaunchRequest, upstream_elsewhere
from sgpu_decl.backends.node_tracker import tracking_credentials
from sgpu_decl.backends.ray.api.cluster_tables import find_job, session_of
from sgpu_decl.backends.ray.cluster.head_names import values_name
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.ray.launching.jobs import (
    cancel_job,
    job_package,
    put_value,
    stop_job,
    submit_job,
)
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.ray.launching.ray_node_program import (
    LAUNCH,
    RayNodeProgram,
    planned_placement,
)
from sgpu_decl.backends.ray.planning.cluster_checks import access_findings
from sgpu_decl.backends.ray.ray_attempts import RayAttempts
from sgpu_decl.backends.remote.launching.delayed_stop import DelayedStop
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.remote.launching.remote_launches import is_started
from sgpu_decl.backends.remote.staging.lease import LEASE
from sgpu_decl.backends.remote.staging.remote_layout import MARKER, render_marker
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.backends.tracker_request import require_uri
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import BackendError, OutcomeUnknown, StalePlan
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.places.file_place import PlaceMissing, get_object

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.ray.api.dashboard import Dashboard
    from sgpu_decl.config.run import RunConfig

_CLUSTER = "cluster.json"
_ELSEWHERE = "on another cluster or with another `storage`"
_SILENT = 15.0  # seconds beyond the grace before Ray is asked to stop a job, at the least
_PENDING_STOP = "it was cancelled before Ray had started its driver"
_FORCED_STOP = "it was cancelled; its driver did not stop it, so Ray ended the job"


class RayLauncher(RemoteLauncher):
    """The marker of a launch has the `address` and the `session` of its cluster. From the moment
    before the submission on, `cluster.json` has them. Without storage, all files of the launch
    folder travel in the package of the job."""

    # The cluster is asked for the job first, and shows it to all of its users.
    knows_earlier_starts = True

    def __init__(
        self,
        context: "BackendContext",
        clusters: Clusters,
        launches: RayLaunches,
        attempts: RayAttempts,
    ) -> None:
        super().__init__(context, launches, attempts, RayNodeProgram(launches))
        self._ray_launches = launches
        self._clusters = clusters
        self._project = context.project

    def check(self, request: LaunchRequest) -> None:
        super().check(request)
        dashboard = self._clusters.launch_at(request.config)
        require_planned_cluster(request, dashboard, self._clusters.answers(dashboard).head)
        session_of(dashboard)
        require_private(request.config, dashboard)
        self._secrets(request)
        require_uri(request.config, os.environ)
        self.require_upstreams(request, _ELSEWHERE)
        for upstream in request.after:
            waits = upstream.ref in request.record.after
            if waits and self._address(upstream) != dashboard.address.url:
                raise upstream_elsewhere(request.ref, upstream.ref, _ELSEWHERE, waits=True)

    def _secrets(self, request: LaunchRequest) -> dict[str, str]:
        references = request.config.secrets
        return resolve_secrets(references, os.environ, request.folder(self._project))

    def _address(self, record: LaunchRecord) -> str:
        """The cluster that a launch was submitted to, or will be."""
        return self._ray_launches.dashboard(record).address.url

    def prepare(
        self, requests: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
        for files in {self._launches.area(item.record).files for item in requests}:
            if isinstance(files, PackagedFiles):
                files.sweep()
        return super().prepare(requests, progress)

    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Json]:
        before = self._earlier_submission(request.record)
        if before is not None:
            return before
        record = request.record
        dashboard = self._ray_launches.dashboard(record)
        facts = {"address": dashboard.address.url, "session": session_of(dashboard)}
        require_private(request.config, dashboard)  # a launch that a crash left was not checked
        files = self._launches.area(record).files
        if isinstance(files, PackagedFiles):
            self._share_again(request)
        files.put(f"{folder}/{_CLUSTER}", canonical(facts).encode())
        values = {
            "secrets": self._secrets(request),
            "credentials": tracking_credentials(request.config, os.environ),
        }
        if any(values.values()):
            put_value(dashboard, values_name(record.token), json.dumps(values).encode())
        own, metadata = {LAUNCH: files.get(f"{folder}/{LAUNCH}")}, _metadata(record)
        if isinstance(files, PackagedFiles):
            own |= _launch_files(files, folder, facts)
            metadata[FOLDER] = folder
        package, content = job_package(own)
        put_value(dashboard, package, content)
        submit_job(dashboard, record.token, package, metadata)
        return facts

    def _share_again(self, request: LaunchRequest) -> None:
        """Have what the launch shares on the head: gc does not see leases that wait here, and may
        have deleted it since."""
        self.uploader.share([request], Quiet())
        self.uploader.release(request.ref)

    def _earlier_submission(self, record: LaunchRecord) -> dict[str, str] | None:
        """The cluster that an earlier `start` submitted a launch to. If that cluster is gone, the
        launch counts as submitted: its attempt is lost.

        Raises:
            OutcomeUnknown: the cluster does not say whether it has the job.
        """
        try:
            before = self._submitted_to(record)
            if before is None:
                return None
            dashboard = self._clusters.at(before["address"], record.owner)
            if session_of(dashboard) == before["session"] and not find_job(dashboard, record.token):
                return None
        except BackendError as error:
            raise OutcomeUnknown(
                f"whether `{record.ref}` was submitted is not known: {error.message}",
                hint=error.hint,
            ) from error
        return before

    def cancel(self, record: LaunchRecord) -> None:
        dashboard = self._dashboard(record)
        job = find_job(dashboard, record.token) if dashboard is not None else None
        if dashboard is None or job is None or job["status"] not in ACTIVE:
            return
        # No rank runs yet, and the request to the driver would be deleted before it comes.
        if job["status"] == "PENDING":
            self._launches.memory.remember(record, stop=_PENDING_STOP)
            if stop_job(dashboard, record.token):
                return
            self._launches.memory.remember(record, stop=None)
        cancel_job(dashboard, record.token)

    def forced_stop(self, record: LaunchRecord, patience: float | None) -> ForcedStop | None:
        dashboard = self._dashboard(record)
        if dashboard is None:
            return None
        grace = self._launches.config(record).grace.seconds

        def stop() -> str | None:
            job = find_job(dashboard, record.token)
            if job is None or job["status"] not in ACTIVE:
                return None
            self._launches.memory.remember(record, stop=_FORCED_STOP)
            stop_job(dashboard, record.token)
            return "its driver did not stop it: Ray was asked to end the job"

        return DelayedStop(grace + max(patience or 0, _SILENT), stop)

    def _dashboard(self, record: LaunchRecord) -> "Dashboard | None":
        """That of the cluster which a launch was submitted to, if it was."""
        cluster = self._submitted_to(record) if self.staged(record) else None
        return self._clusters.at(cluster["address"], record.owner) if cluster is not None else None

    def _submitted_to(self, record: LaunchRecord) -> dict[str, str] | None:
        """The cluster that a launch may have been submitted to. Raises BackendError."""
        marker = self._launches.marker(record)
        if marker is not None and is_started(marker):
            return {"address": marker["address"], "session": marker["session"]}
        path = f"{self._launches.folder(record)}/{_CLUSTER}"
        try:
            return get_object(self._launches.area(record).files, path)
        except PlaceMissing:
            return None


def _launch_files(files: PackagedFiles, folder: str, facts: Mapping[str, Json]) -> dict[str, bytes]:
    """What the driver is to write to the launch folder, as files of the package."""
    waiting = files.packaged(folder)
    marker = json.loads(files.get(f"{folder}/{MARKER}"))
    waiting[MARKER] = render_marker(marker["uses"], token=marker["token"], **facts)
    left_out = (LAUNCH, LEASE)
    return {f"files/{name}": data for name, data in waiting.items() if name not in left_out}


def _metadata(record: LaunchRecord) -> dict[str, str]:
    """What `ray job list` and the dashboard show of a launch."""
    return {
        "sgpu.lineage": record.lineage,
        "sgpu.address": str(record.ref.address),
        "sgpu.attempt": str(record.ref.number),
    }


def require_planned_cluster(
    request: "LaunchRequest", dashboard: "Dashboard", head: Callable[[], str | None]
) -> None:
    """Refuse a launch on another cluster than that of its plan: its ranks were placed on the nodes
    of that one, whose versions and access were checked. `RAY_ADDRESS` may lead elsewhere since a
    plan was saved. So may the same address: it may be that of a forwarded port, or of another
    machine.

    Args:
        dashboard: that of the cluster which the settings lead to now.
        head: gives the id of its head.

    Raises:
        StalePlan: it is another one.
        BackendError: the plan does not say which one it was, or the cluster does not answer.
    """
    placement, address = planned_placement(request), dashboard.address
    if placement.address is None:
        error = BackendError(
            f"the Ray cluster did not answer when `{request.ref}` was planned, so its ranks have "
            "no place there",
            hint="apply again: that plans again; make a saved plan anew",
            code="unavailable",
        )
        error.retryable = True
        raise error
    if placement.address != address.url:
        variable = address.source or "RAY_ADDRESS"
        raise StalePlan(
            f"`{request.ref}` was planned for the Ray cluster at `{placement.address}`, and the "
            f"settings here lead to `{address.url}`",
            hint=f"plan again; or set `{variable}` to `{placement.address}` and apply this plan",
            code="other_cluster",
        )
    if head() != placement.head:
        raise StalePlan(
            f"`{request.ref}` was planned for another Ray cluster than the one that answers at "
            f"`{address.url}` now, or its head was started again since the plan",
            hint="plan again",
            code="other_cluster",
        )


def require_private(config: "RunConfig", dashboard: "Dashboard") -> None:
    """Refuse to send code and secrets where anyone on the network path can read them. The
    dashboard has answered.

    Raises:
        BackendError: `ray_insecure`, see `access_findings`.
    """
    for finding in access_findings(config, {}, dashboard):
        if finding.severity is Severity.ERROR:
            raise BackendError(finding.summary, hint=finding.hint, code="ray_insecure")
