"""The checks of one workspace: all that can be measured for free, and the probe."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from sgpu_decl.backends.databricks.api.connection import PATIENCE, Connection, TimeLimits
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES, home_of
from sgpu_decl.backends.databricks.conformance.comparison import (
    Refusal,
    compared,
    lacks_api,
    request,
)
from sgpu_decl.backends.databricks.conformance.node_probe import probe_cost, probe_findings
from sgpu_decl.backends.databricks.conformance.storage_checks import (
    volume_findings,
    workspace_findings,
)
from sgpu_decl.backends.databricks.conformance.validation import submission_findings
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.model.probe import ProbeCost, ProbeOptions

_LIMIT = 30.0  # seconds
_BRIEF = TimeLimits(silence=10.0, retry_seconds=3)  # of one request
_LONGEST = 20.0  # seconds
_LISTED = (
    ("compute-options", "/api/2.0/ai-compute-manager/compute-options", "compute_options", "GPUs"),
    ("capacities", "/api/2.0/ai-training/provisioned-capacities", "provisioned_capacities",
     "reserved pools"),
    ("policies", "/api/2.0/serverless-policies", "policies", "budget policies"),
)  # fmt: skip
_LOGS = "/api/2.0/ai-training/workflows/by-run-id/1/logs"


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


def free_findings(configured: Workspace) -> Generator[Finding, None, None]:
    """Measure the workspace and the staging folder that runs use. Answers are neither cached nor
    taken from the cache."""
    with closing(Connection(configured.account, _BRIEF)) as connection:
        yield from _findings(configured, connection)


def _findings(configured: Workspace, connection: Connection) -> Generator[Finding, None, None]:
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


def login_findings(connection: Connection) -> Iterator[Finding]:
    """Log in, and say how long it took.

    Raises:
        SgpuError: nobody is logged in.
    """
    began = time.monotonic()
    connection.await_answer(patience=_LONGEST)
    took = time.monotonic() - began
    slow = took > PATIENCE
    advice = f"plans give up after {PATIENCE:g} s: use a token or an OAuth secret"
    answered = f"`{connection.host}` answered after {took:.1f} s"
    yield ok("login", answered, unless=advice if slow else None)
    yield ok("identity", f"logged in as `{connection.user}`")
    ahead = connection.ahead
    if not ahead:
        yield ok("clock", "the clocks of the workspace and of this machine agree")
        return
    side = "ahead of" if ahead > 0 else "behind"
    yield warn(
        "clock",
        f"the workspace's clock is {abs(ahead):g} s {side} this machine's",
        "set this machine's clock, as with `timedatectl set-ntp true`",
    )


def service_findings(connection: Connection) -> Generator[Finding, None, None]:
    unknown = request(connection, "GET", "/api/2.0/sgpu/doctor")
    if isinstance(unknown, Refusal):
        yield compared("unknown-api", unknown.code, "the error code of an API that does not exist")
    for id_, path, name, what in _LISTED:
        answer = request(connection, "GET", path, query={"page_size": 100})
        if isinstance(answer, Refusal) and not lacks_api(answer):
            yield _closed(id_, answer)
            continue
        entries = [] if isinstance(answer, Refusal) else answer.get(name) or []
        there = not isinstance(answer, Refusal)
        words = (
            f"the workspace lists {len(entries)} kinds of {what}"
            if there
            else f"the workspace lists no {what}"
        )
        if there and id_ != "compute-options":
            words = f"the workspace lists {len(entries)} {what}"
        yield compared(id_, there, words)
        if id_ == "compute-options" and there:
            kinds = tuple(sorted(str(item.get("hardware_accelerator")) for item in entries))
            yield compared("accelerators", kinds, "the kinds of GPU nodes that the workspace lists")
    logs = request(connection, "GET", _LOGS)
    there = not lacks_api(logs)
    yield compared(
        "log-service", there, f"the workspace has {'an' if there else 'no'} API that reads logs"
    )
    scopes = request(connection, "GET", "/api/2.0/secrets/scopes/list")
    if isinstance(scopes, Refusal):
        yield _closed("secrets", scopes)
    else:
        number = len(scopes.get("scopes") or ())
        text = f"the workspace shows {number} secret scopes"
        yield ok("secrets", text)


def _closed(check: str, refusal: Refusal) -> Finding:
    return warn(
        check,
        f"the workspace does not say: {refusal.message} ({refusal.code})",
        "ask an admin of the workspace, if you need it",
    )
