"""Whether a run can work on Databricks, said at plan time."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from sgpu_decl.backends.databricks.asking import ask_workspace
from sgpu_decl.backends.databricks.code_rules import code_findings
from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.databricks.offers import offers_known
from sgpu_decl.backends.databricks.rules import config_findings
from sgpu_decl.backends.databricks.workspace import Workspaces
from sgpu_decl.backends.interpreting import interpreter_of
from sgpu_decl.config.backend import Backend as BackendBlock
from sgpu_decl.config.env import Env
from sgpu_decl.config.pools import choose_pool
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.pool import PoolChoice, PoolKind
from sgpu_decl.staging.snapshot import Snapshot

__all__ = ["DatabricksSurvey"]

_NOTICED = 300.0  # seconds that two clocks may differ without a word


class DatabricksSurvey:
    """See `backends.base.Survey`."""

    elsewhere = True

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._expected: set[BackendBlock] = set()
        self._unasked: set[str] = set()

    def expect(self, config: RunConfig) -> None:
        if config.backend in self._expected:
            return
        self._expected.add(config.backend)
        connection = self._workspaces.of(config.backend).connection
        with suppress(BackendError):  # `check` says that nothing says which workspace is meant
            if not offers_known(connection):
                connection.start()

    def interpreter(self, env: Env, folder: Path) -> Interpreter | None:
        """The platform has the Python that ranks use. What is captured or locked is made from one
        here, and sent."""
        if env.snapshot or env.lock or env.requirements:
            return interpreter_of(env.python, folder)
        return None

    def pool(self, config: RunConfig) -> tuple[PoolChoice | None, Sequence[Diagnostic]]:
        choice, findings = choose_pool(config.pool, os.environ)
        if choice is None or choice.kind is not PoolKind.RESERVED:
            return choice, findings
        try:
            accessible = ask_workspace(self._workspaces.of(config.backend)).pools_of(config)
        except SgpuError:
            return choice, findings  # `check` says why
        return choose_pool(config.pool, os.environ, accessible=accessible)

    def check(
        self,
        config: RunConfig,
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        workspace = self._workspaces.of(config.backend)
        found = list(config_findings(config, places, folder, self.interpreter, called=called))
        try:
            asked = ask_workspace(workspace)
            found += asked.accelerator(config, places)
            found += self._clock(workspace.connection, places)
            if not has_errors(found):
                found += asked.named(config, places)
            if not has_errors(found):
                found += asked.validated(config, places)
        except SgpuError as error:
            if error.code != "unknown_base":  # said where environments are looked at
                found += self._unreachable(error, places)
        return found

    def check_code(
        self,
        config: RunConfig,
        places: Mapping[str, Place],  # noqa: ARG002  the protocol's
        code: Snapshot,
    ) -> Sequence[Diagnostic]:
        return code_findings(config, code)

    def _clock(self, connection: Connection, places: Mapping[str, Place]) -> Sequence[Diagnostic]:
        """Once. Runs do not depend on it, but logins that expire do, and so does whoever looks for
        a moment in the workspace's own pages."""
        ahead = connection.ahead_as_known
        if ahead is None or abs(ahead) < _NOTICED or connection.host in self._unasked:
            return ()
        self._unasked.add(connection.host)
        apart = timedelta(minutes=round(abs(ahead) / 60))
        direction = "ahead of" if ahead > 0 else "behind"
        found = Diagnostic(
            code="clock_differs",
            severity=Severity.WARNING,
            summary=f"the clock of `{connection.host}` is {apart} {direction} this machine's",
            place=places.get("backend.kind") or places.get("backend"),
            hint="set this machine's clock, as with `timedatectl set-ntp true`; times of runs are "
            "shown by it",
        )
        return (found,)

    def _unreachable(self, error: SgpuError, places: Mapping[str, Place]) -> Sequence[Diagnostic]:
        """Once: a plan can be made without its workspace, and not be carried out."""
        if error.message in self._unasked:
            return ()
        self._unasked.add(error.message)
        found = Diagnostic(
            code=error.code,
            severity=Severity.WARNING,
            summary=f"the workspace could not be asked, and `apply` would fail: {error.message}",
            hint=error.hint,
        )
        return (replace(found, place=places.get("backend.kind") or places.get("backend")),)
