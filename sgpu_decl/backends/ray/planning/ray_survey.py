"""Checks at plan time whether a run can work on a Ray cluster."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from sgpu_decl.backends.node_tracker import tracking_findings
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress, address_of
from sgpu_decl.backends.ray.api.dashboard_connection import budgeted
from sgpu_decl.backends.ray.cluster.bundle_counts import HEAD_RESOURCE
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE
from sgpu_decl.backends.ray.clusters import ClusterAnswers, Clusters
from sgpu_decl.backends.ray.placement import whole_cpus
from sgpu_decl.backends.ray.planning.cluster_checks import (
    access_findings,
    cluster_findings,
)
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterNode, ClusterState, read_cluster
from sgpu_decl.backends.ray.planning.group_shape import (
    Fit,
    fit_of,
    has_equal_groups,
    has_shape,
    in_words,
    is_gpu_run,
    options_of,
    scales,
)
from sgpu_decl.backends.ray.planning.launch_placement import placement_of
from sgpu_decl.backends.ray.planning.ray_config_rules import config_findings, machine_findings
from sgpu_decl.backends.ray.planning.room_checks import room_findings, room_of
from sgpu_decl.backends.ray.planning.shortage import cluster_in_words
from sgpu_decl.backends.remote.remote_survey import RemoteSurvey
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import Pythons
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.desired import Interpreter, Placement
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.gpu_offer import GpuOffer, up_to
from sgpu_decl.model.plan import PlanPlatform
from sgpu_decl.model.ray_size import NodeShape

if TYPE_CHECKING:
    from sgpu_decl.backends.ray.options import RayOptions
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class _ClusterFacts:
    dashboard: Dashboard
    answers: ClusterAnswers
    state: ClusterState


class RaySurvey(RemoteSurvey):
    """What clusters have. Each is asked once, in a thread of its own, while the plan reads files:
    for its versions, its nodes and their use, and for its jobs if a run has to wait. These are at
    most five requests, with the one that shows whether a token is required.

    Args:
        lineage: gives that of the project's state.
    """

    def __init__(
        self,
        pythons: Callable[[], Pythons],
        clusters: Clusters,
        lineage: Callable[[], str | None],
    ) -> None:
        super().__init__(pythons)
        self._clusters = clusters
        self._lineage = lineage
        self._questions: dict[str, _ClusterProbe] = {}  # by the URL of the dashboard

    def expect(self, config: "RunConfig") -> None:
        with suppress(BackendError):  # `check` says why
            self._begin(config)

    def placement(self, config: "RunConfig") -> tuple[Placement | None, Sequence[Diagnostic]]:
        if any(config_findings(config, {}, Path(), called=True)):
            return None, ()  # `check` says which field is wrong
        try:
            answered = self._answered(config)
        except BackendError:
            return None, ()  # `check` says why
        fit, options = fit_of(config, answered.state), options_of(config)
        if not has_shape(config, answered.state, fit):
            return None, ()  # `check` says that it never fits
        model = f", with {fit.model}" if config.type.kind is GPUType.GPU and fit.model else ""
        url = answered.dashboard.address.url
        note = (
            Diagnostic(
                code="ray_driver",
                severity=Severity.INFO,
                summary=f"the driver runs {_of_driver(fit)}, on `{url}`, which has "
                f"{cluster_in_words(answered.state, grows=scales(config, answered.state))}",
                hint="`num_cpus`, `num_gpus` and `resources` in `ray` are those of the driver",
            )
            if config.drives_existing
            else Diagnostic(
                code="ray_placement",
                severity=Severity.INFO,
                summary=f"{in_words(fit, options.strategy)}{model}, on `{url}`",
                hint="`ranks_per_node` and `strategy` in `backend` change it",
            )
        )
        placement = replace(
            placement_of(config, answered.state, fit),
            address=url,
            head=answered.state.head_id,
        )
        room = room_of(answered.state, url)
        return Placement(id=placement.id, note=note, field="backend", room=room), ()

    def nodes(self, config: "RunConfig") -> NodeShape | None:
        if not has_equal_groups(config):
            return None
        try:
            state = self._answered(config).state
        except BackendError:
            return None
        fit = fit_of(config, state)
        return NodeShape(
            nodes=fit.groups,
            gpus=fit.ranks if is_gpu_run(config) else 0,
            cpus=whole_cpus(fit.bundle),
            ray=state.ray if config.drives_existing else None,
        )

    def account(self, config: "RunConfig") -> PlanPlatform | None:
        try:
            url = self._answered(config).dashboard.address.url
        except BackendError:
            return None  # `check` says why
        return PlanPlatform(backend=str(config.backend.kind), host=url)

    def offers(self, block: "BackendOptions") -> Sequence[GpuOffer]:
        address = address_of(cast("RayOptions", block).address, os.environ)
        state = read_cluster(self._clusters.dashboard(address))
        more = "it starts more nodes on demand" if state.scales else None
        found: dict[str, list[ClusterNode]] = {}
        for node in state.nodes:
            if node.gpus >= 1:
                found.setdefault(node.kind.name if node.kind is not None else "GPU", []).append(
                    node
                )
        return [
            GpuOffer(
                type=kind,
                gpus=up_to(total := sum(int(node.gpus) for node in nodes)),
                free=sum(int(node.free.get("GPU", 0.0)) for node in nodes),
                total=total,
                where=f"the Ray cluster at {address.url}",
                note=more,
            )
            for kind, nodes in found.items()
        ]

    def site(self, config: "RunConfig") -> str:
        options = options_of(config)
        try:
            url = address_of(options.address, os.environ).url
        except BackendError:
            return ""  # `check` says why
        return f"`{url}`" if options.storage is None else f"`{url}` with `{options.storage}`"

    def rules(self, config: "RunConfig", places: Places, folder: Path) -> Sequence[Diagnostic]:
        return tuple(config_findings(config, places, folder, called=False))

    def check(
        self, config: "RunConfig", places: Places, folder: Path, *, called: bool
    ) -> Sequence[Diagnostic]:
        findings = list(config_findings(config, places, folder, called=called))
        findings += machine_findings(config, places, folder)
        if config.mlflow.enabled:
            findings += tracking_findings(config, places, os.environ)
        python = self.python(config.env, folder)
        if python is not None and not isinstance(python, Interpreter):
            findings.append(python.diagnostic(places.get("env.python")))
            python = None
        try:
            answered = self._answered(config)
            sent = python.version if python is not None else None
            findings += cluster_findings(config, places, answered.state, python=sent, called=called)
            findings += access_findings(config, places, answered.dashboard)
            if has_equal_groups(config):
                fit = fit_of(config, answered.state)
                findings += room_findings(
                    config,
                    places,
                    answered.state,
                    fit,
                    lambda: self._holders(answered),
                )
        except BackendError as error:
            ways = ("backend.address", "backend.kind", "backend")
            at = next((places[path] for path in ways if path in places), None)
            findings += self.unanswered("cluster", error, "a launch there would fail", at)
        return findings

    def _begin(self, config: "RunConfig") -> "_ClusterProbe":
        """Ask the cluster of a run, unless that was begun before. Raises BackendError."""
        address = address_of(options_of(config).address, os.environ)
        question = self._questions.get(address.url)
        if question is None:
            question = self._questions[address.url] = _ClusterProbe(self._clusters, address)
            question.start()
        return question

    def _answered(self, config: "RunConfig") -> _ClusterFacts:
        """Raises BackendError."""
        return self._begin(config).answer()

    def _holders(self, answered: _ClusterFacts) -> Sequence[str]:
        """The attempts of this project that run on a cluster; none if it does not say."""
        lineage = self._lineage()
        if lineage is None:
            return ()
        try:
            with budgeted():
                return running_attempts(answered.answers.jobs(), lineage)
        except BackendError:
            return ()  # what is free is known without them


class _ClusterProbe(Thread):
    """A cluster is asked while the plan goes on. (`concurrent.futures` is slow to import.)"""

    def __init__(self, clusters: Clusters, address: DashboardAddress) -> None:
        super().__init__(name="ray-cluster", daemon=True)
        self._clusters = clusters
        self._address = address
        self._answered: _ClusterFacts | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            dashboard = self._clusters.dashboard(self._address)
            with self._clusters.asking([f"the cluster of {self._address.url}"]):
                state = read_cluster(dashboard)
            answers = self._clusters.answers(dashboard)
            answers.note_nodes([node.id for node in state.nodes], state.head_id)
            self._answered = _ClusterFacts(dashboard, answers, state)
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            self._error = error

    def answer(self) -> _ClusterFacts:
        """Wait for the answer. Raises BackendError."""
        patience = self._clusters.budget
        self.join(patience + 1)  # a name server may be silent for longer than any socket
        if self._error is not None:
            raise self._error
        if self._answered is None:
            raise BackendError(
                f"the cluster does not answer: nothing came in {patience:g} s",
                hint="see that `address` in `backend` is right, and that this network reaches it",
                code="host_unreachable",
            )
        return self._answered


def _of_driver(fit: Fit) -> str:
    """Where the driver runs."""
    if HEAD_RESOURCE in fit.bundle:
        return "on the head node"
    amounts = [f"{amount:g} {name}" for name, amount in fit.bundle.items()]
    return f"on a node with {', '.join(amounts)} for it"


def running_attempts(jobs: Iterable[Mapping[str, Any]], lineage: str) -> tuple[str, ...]:
    """The attempts that are active there, such as `` `run.train#3` ``: those of the state with this
    lineage. Other projects have runs with the same names."""
    names = []
    for job in jobs:
        metadata = job.get("metadata") or {}
        address, attempt = metadata.get("sgpu.address"), metadata.get("sgpu.attempt")
        own = metadata.get("sgpu.lineage") == lineage
        if own and address and attempt and job["status"] in ACTIVE:
            names.append(f"`{address}#{attempt}`")
    return tuple(sorted(names))
