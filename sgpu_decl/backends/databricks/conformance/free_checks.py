"""All that can be measured of a workspace for free, within half a minute."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing

from sgpu_decl.backends.databricks.api.connection import Connection, TimeLimits
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES, home_of
from sgpu_decl.backends.databricks.conformance.login import login_findings
from sgpu_decl.backends.databricks.conformance.refusal import Refusal, request
from sgpu_decl.backends.databricks.conformance.services import service_findings
from sgpu_decl.backends.databricks.conformance.storage_checks import (
    volume_findings,
    workspace_findings,
)
from sgpu_decl.backends.databricks.conformance.validation import submission_findings
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_LIMIT = 30.0  # seconds
_BRIEF = TimeLimits(silence=10.0, retries=3)  # of one request


def free_findings(configured: Workspace) -> Generator[Finding, None, None]:
    """Measure the workspace and the staging folder that runs use. Answers are neither cached nor
    taken from the cache."""
    connection = Connection(configured.account, _BRIEF)
    deadline = time.monotonic() + _LIMIT
    try:
        yield from login_findings(connection)
    except SgpuError as error:
        yield _failed("login", error)
        return
    staging = configured.staging or home_of(connection.user)
    workspace = Workspace(configured.account, connection, staging)
    parts = {
        "services": service_findings(connection),
        "experiments": _experiment_findings(workspace),
        "runs": submission_findings(workspace),
        "staging": _storage_findings(connection, staging),
    }
    for name, findings in parts.items():
        with closing(findings):  # which tidies up
            yield from _within(deadline, name, findings)


def _within(deadline: float, name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Findings until the time is over, or the workspace fails."""
    while time.monotonic() < deadline:
        try:
            finding = next(findings, None)
        except SgpuError as error:
            yield _failed(name, error)
            return
        if finding is None:
            return
        yield finding
    yield warn(
        name,
        f"not everything was measured within {_LIMIT:g} s",
        "try again where the network is faster",
    )


def _storage_findings(connection: Connection, staging: str) -> Generator[Finding, None, None]:
    """Commands lie below `/Workspace` also where the staging folder is one of a volume."""
    if staging.startswith(VOLUMES):
        yield from volume_findings(connection, staging)
        staging = home_of(connection.user)
    yield from workspace_findings(connection, staging)


def _experiment_findings(workspace: Workspace) -> Generator[Finding, None, None]:
    path = workspace.experiments
    answer = request(
        workspace.connection, "GET", "/api/2.0/workspace/get-status", query={"path": path}
    )
    if isinstance(answer, Refusal):
        yield warn(
            "experiments",
            f"the folder of experiments, `{path}`, is not there: {answer.message}",
            "`apply` makes it; or name another with `mlflow.experiment`",
        )
    else:
        yield ok("experiments", f"experiments are in `{path}`")


def _failed(check: str, error: SgpuError) -> Finding:
    return fail(check, error.message, error.hint)
