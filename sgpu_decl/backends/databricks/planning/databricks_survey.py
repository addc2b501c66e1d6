"""Checks at plan time whether a run can work on Databricks."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from sgpu_decl.backends.databricks.api.connection import FIRST_ANSWER, Connection
from sgpu_decl.backends.databricks.options import DatabricksOptions
from sgpu_decl.backends.databricks.planning.catalog import (
    Catalog,
    catalog_of,
    is_catalog_cached,
)
from sgpu_decl.backends.databricks.planning.code_rules import code_findings
from sgpu_decl.backends.databricks.planning.databricks_config_rules import config_findings
from sgpu_decl.backends.databricks.planning.machines import machines_of, offered
from sgpu_decl.backends.databricks.planning.named_objects import id_of
from sgpu_decl.backends.databricks.planning.pools import PoolKind, choose_pool
from sgpu_decl.backends.databricks.planning.remote_checks import RemoteChecks
from sgpu_decl.backends.databricks.workspace import Workspaces
from sgpu_decl.backends.remote.remote_survey import RemoteSurvey
from sgpu_decl.backends.remote.staging.state_marks import marks_of_others
from sgpu_decl.code.sources import Source
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import NoPython, Pythons
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.desired import Interpreter, Placement
from sgpu_decl.model.gpu_offer import GpuOffer
from sgpu_decl.model.plan import PlanPlatform
from sgpu_decl.model.ray_size import NodeShape
from sgpu_decl.model.state_mark import StateMark

_NOTICED = 300.0  # seconds that two clocks may differ without a word


class DatabricksSurvey(RemoteSurvey):
    """What a workspace offers."""

    # The platform itself installs dependencies.
    sent = tuple(name for name in RemoteSurvey.sent if name != "dependencies")

    def __init__(self, workspaces: Workspaces, pythons: Callable[[], Pythons]) -> None:
        super().__init__(pythons)
        self._workspaces = workspaces
        self._expected: set[BackendOptions] = set()
        self._refusals: dict[str, Sequence[Mapping[str, Any]]] = {}

    def expect(self, config: RunConfig) -> None:
        if config.backend in self._expected:
            return
        self._expected.add(config.backend)
        connection = self._workspaces.of(config.backend).connection
        with suppress(BackendError):  # `check` says that nothing says which workspace is meant
            if not is_catalog_cached(connection):
                connection.start()

    def placement(self, config: RunConfig) -> tuple[Placement | None, Sequence[Diagnostic]]:
        choice, findings = choose_pool(config, os.environ)
        if choice is not None and choice.kind is PoolKind.RESERVED:
            with suppress(SgpuError):  # `check` says why
                catalog = catalog_of(self._workspaces.of(config.backend).connection)
                accessible = _pools(catalog, config)
                choice, findings = choose_pool(config, os.environ, accessible=accessible)
        return (choice.placement if choice is not None else None), findings

    def nodes(self, config: RunConfig) -> NodeShape | None:
        machines = machines_of(config)
        if machines is None:
            return None
        return NodeShape(nodes=machines.nodes, gpus=machines.gpus // machines.nodes)

    def account(self, config: RunConfig) -> PlanPlatform | None:
        workspace = self._workspaces.of(config.backend)
        try:
            host, user = workspace.connection.host, workspace.user
        except SgpuError:
            return None  # `check` says why
        return PlanPlatform(backend=str(config.backend.kind), host=host, user=user)

    def person(self, block: BackendOptions) -> str | None:
        try:
            return self._workspaces.of(block).connection.person
        except SgpuError:
            return None  # `check` says why

    def lookup(self, block: BackendOptions, kind: str, name: str) -> str | None:
        return id_of(self._workspaces.of(block).connection, kind, name)

    def offers(self, block: BackendOptions) -> Sequence[GpuOffer]:
        named = block.host if isinstance(block, DatabricksOptions) else None
        where = "serverless GPU compute" + (f" of {named}" if named is not None else "")
        return [GpuOffer(type=kind.name, gpus=counts, where=where) for kind, counts in offered()]

    def site(self, config: RunConfig) -> str:
        block = config.backend
        assert isinstance(block, DatabricksOptions)  # noqa: S101  what this backend's kind has
        names = {"host": block.host, "profile": block.profile, "staging": block.staging}
        return ", ".join(f"`{name}: {value}`" for name, value in names.items() if value)

    def other_states(self, config: RunConfig, own: StateMark) -> Mapping[str, StateMark]:
        return marks_of_others(self._workspaces.of(config.backend).area, own)

    def rules(
        self, config: RunConfig, places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        return tuple(config_findings(config, places, folder, None, called=False))

    def check(
        self,
        config: RunConfig,
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        workspace = self._workspaces.of(config.backend)
        findings = self._unasked(config, places, folder, called=called)
        try:
            catalog = catalog_of(workspace.connection)
            findings += self._clock(workspace.connection, places)
            accessible = _pools(catalog, config)
            choice, _ = choose_pool(config, os.environ, accessible=accessible)
            checks = RemoteChecks(workspace, catalog, config, places, self._refusals)
            findings += checks.findings(choice)
            if not has_errors(findings):
                findings += checks.validated(choice.placement.id if choice is not None else None)
        except SgpuError as error:
            if error.code != "unknown_base":  # a finding of the checks of environments
                then = "a launch there would fail"
                if error.retryable:
                    then = f"`apply` asks again, and waits up to {FIRST_ANSWER:.0f} s for an answer"
                at = places.get("backend.kind") or places.get("backend")
                findings += self.unanswered("workspace", error, then, at)
        return findings

    def _unasked(
        self, config: RunConfig, places: Mapping[str, Place], folder: Path, *, called: bool
    ) -> list[Diagnostic]:
        """Those findings of `check` for which no workspace is asked."""
        python = self.python(config.env, folder)
        source = python if isinstance(python, Interpreter) else None
        findings = list(config_findings(config, places, folder, source, called=called))
        if isinstance(python, NoPython) and not has_errors(findings):
            findings.append(python.diagnostic(places.get("env.python")))
        return findings

    def check_code(
        self,
        config: RunConfig,  # noqa: ARG002  the protocol's
        places: Mapping[str, Place],  # noqa: ARG002
        executed: Sequence[Source],
    ) -> Sequence[Diagnostic]:
        return code_findings(executed)

    def _clock(self, connection: Connection, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """Once. Runs do not depend on the clocks, but logins that expire do, and so does a user who
        looks for a moment in the workspace's own pages."""
        ahead = connection.ahead_as_known
        if ahead is None or abs(ahead) < _NOTICED or connection.host in self._reported:
            return
        self._reported.add(connection.host)
        difference = timedelta(minutes=round(abs(ahead) / 60))
        direction = "ahead of" if ahead > 0 else "behind"
        yield Diagnostic(
            code="clock_differs",
            severity=Severity.WARNING,
            summary=f"the clock of `{connection.host}` is {difference} {direction} this machine's",
            place=places.get("backend.kind") or places.get("backend"),
            hint="set this machine's clock, as with `timedatectl set-ntp true`; times of runs are "
            "shown by it",
        )


def _pools(catalog: Catalog, config: RunConfig) -> tuple[str, ...]:
    """The reserved pools that could have a run's nodes."""
    machines = machines_of(config)
    return catalog.pools_for(machines.accelerator) if machines is not None else ()
