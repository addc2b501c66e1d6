"""`sgpu doctor probe -t TARGET`: runs on one GPU, or two, that measure the nodes.

    report ─▶ findings of a node                one run, watched while it goes on
    tree, fail, hold, retried, gang ─▶ endings  short runs, at the same time

`--only` runs some of them.

Nothing of it stays in the workspace, however it ends.
"""

import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
from sgpu_decl.backends.databricks.conformance import node_findings
from sgpu_decl.backends.databricks.conformance.comparison import compared
from sgpu_decl.backends.databricks.conformance.probe_run import Act, ProbeRun, Record, records_in
from sgpu_decl.backends.databricks.conformance.probe_tree import NoTree
from sgpu_decl.backends.databricks.launching.submit import DEFAULT_BASE, environment_spec
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.errors import BackendError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.model.probe import ACTS, ProbeCost, ProbeOptions

_SILENT = 30.0  # seconds after which a running node is taken for one that cannot write files
_USUAL = MappingProxyType({"report": 2.0, "gang": 2.0})  # minutes; the others take about one
_WORK = 600.0  # seconds that the libraries of a node may take


def probe_cost(options: ProbeOptions) -> ProbeCost:
    """What a probe uses. The longest of its runs are the first, which imports libraries, and the
    one that waits for its limit.

    Raises:
        BackendError: tasks cannot choose the base environment.
    """
    environment_spec(options.base or DEFAULT_BASE, ())
    acts = _acts(options)
    return ProbeCost(
        runs=len(acts),
        gpu="A10",
        usual=sum(_USUAL.get(act.name, 1.0) * act.nodes for act in acts) + options.limit / 36,
        worst=sum(act.limit * act.nodes * (1 + act.retries) for act in acts) / 60,
    )


def probe_findings(
    workspace: Workspace, options: ProbeOptions, note: Callable[[str], None]
) -> Generator[Finding, None, None]:
    """Measure a workspace; findings come as they are made.

    Args:
        note: called with each step in words.

    Raises:
        BackendError: the workspace does not answer, or refuses a run.
    """
    probe = _Probe(workspace, options, note)
    try:
        yield from probe.findings()
    finally:
        probe.remove()
    yield ok("left-behind", "the runs of the probe, their experiments and their files are deleted")


def _acts(options: ProbeOptions) -> list[Act]:
    base = options.base
    acts = [
        Act(name="report", seconds=120, limit=1200, secret=options.secret, base=base),
        Act(name="tree", seconds=0, limit=1200, tree=True, base=base),
        Act(name="fail", seconds=0, limit=600, base=base),
        Act(name="hold", seconds=300, limit=600, base=base),
        Act(
            name="retried", seconds=options.limit, limit=round(options.limit), retries=1, base=base
        ),
    ]
    if options.nodes > 1:
        acts.append(
            Act(name="gang", seconds=2 * options.limit, limit=1200, nodes=options.nodes, base=base)
        )
    return [act for act in acts if act.name in (options.only or ACTS)]


class _Probe:
    def __init__(
        self, workspace: Workspace, options: ProbeOptions, note: Callable[[str], None]
    ) -> None:
        self._workspace = workspace
        self._options = options
        self._note = note
        self._token = f"sgpu-doctor-{uuid.uuid4().hex[:12]}"
        self._root = workspace.area.layout.root
        self._folder = f"{self._root}/{self._token}"
        self._rootless = _missing(workspace, self._root)
        self._runs = [ProbeRun(workspace, act, self._folder, self._token) for act in _acts(options)]
        self._current = self._runs[0]

    def findings(self) -> Iterator[Finding]:
        for finding in self._all_findings():
            yield replace(finding, run=self._current.name)

    def _all_findings(self) -> Iterator[Finding]:
        """Others are submitted when `report` got a GPU and has ended: they take one, too."""
        first, *later = self._runs
        if not (yield from self._submitted(first)):
            return
        short = [first]
        if first.name == "report":
            if not (yield from self._reported(first)):
                return
            short = []
        for run in later:
            if (yield from self._submitted(run)):
                short.append(run)
        ends = {
            "tree": self._in_tree,
            "fail": self._failed,
            "hold": self._cancelled,
            "retried": self._timed_out,
            "gang": self._together,
        }
        for self._current in short:
            yield from ends[self._current.name](self._current)

    def remove(self) -> None:
        """Raises BackendError: something of the probe is still there."""
        self._note("deleting what the probe made")
        problems = []
        for run in self._runs:
            try:
                run.remove()
            except BackendError as error:
                problems.append(error)
        with suppress(BackendError):
            self._workspace.area.files.delete(self._folder)
            if self._rootless and not self._workspace.area.files.list(self._root):
                self._workspace.area.files.delete(self._root)
        if problems:
            raise BackendError(
                f"the probe could not delete all that it made: {problems[0].message}",
                hint=f"delete `{self._folder}`, and the runs that are named `sgpu-doctor-…`",
                code="backend_error",
            ) from problems[0]

    def _submitted(self, run: ProbeRun) -> Generator[Finding, None, bool]:
        """Submit a run; returns whether there is one: its body was taken."""
        self._current = run
        self._note(f"submitting `{run.name}`")
        try:
            run.begin()
        except NoTree as error:
            text = f"an environment of sgpu's own was not tried: {error.message}"
            yield warn("node-mlflow-tree", text, error.hint)
            return False
        except Rejected as error:
            yield compared("submit-fields", False, error.message)  # noqa: FBT003  the value found
            return False
        yield compared("submit-fields", True, "the workspace accepts a run")  # noqa: FBT003
        return True

    def _reported(self, run: ProbeRun) -> Generator[Finding, None, bool]:
        """The findings of `report`; returns whether it got a node."""
        options = self._options
        log = _Listening(run)
        self._note(f"waiting for a GPU, for {options.patience:g} s at most")
        if not self._got_node(run):
            yield self._never_began(run)
            return False
        self._note("a node has begun")
        ready = run.await_record("ready", _SILENT, unless=log.cannot_write)
        put_at = time.time()
        run.put("ping")
        pong = run.await_record("pong", 150) if ready is not None else None
        answered_at = time.time()
        node = run.record("node")
        if node is not None:
            yield from node_findings.node_findings(node, secret=options.secret, base=options.base)
        if ready is not None:
            yield from node_findings.visibility_findings(put_at, pong, answered_at)
        run.await_end(_WORK)
        log.end()
        logged = {
            str(item.get("name")): item for item in records_in([line for _, line in log.lines])
        }
        if node is None and (node := logged.get("node")) is not None:
            yield from node_findings.node_findings(node, secret=options.secret, base=options.base)
        if node is None:
            yield fail(
                "node",
                "a node ran the probe, and neither a file nor a line of its log came back",
                "open the run's log in the workspace: it says how far the command came",
            )
        sdk, mlflow, index = (
            run.record(name) or logged.get(name) for name in ("sdk", "mlflow", "index")
        )
        yield from node_findings.library_findings(sdk, mlflow, index)
        yield from node_findings.log_findings(log.lines, run.record("ready") or ready)
        return True

    def _got_node(self, run: ProbeRun) -> bool:
        deadline = time.monotonic() + self._options.patience
        while not run.began():
            if time.monotonic() > deadline:
                run.cancel()
                return False
            time.sleep(0.25)
        return True

    def _never_began(self, run: ProbeRun) -> Finding:
        return fail(
            f"probe-{run.name}",
            f"no GPU came in {self._options.patience:g} s, so nothing was measured",
            "try again when the workspace has GPUs, or wait longer with `--patience 2h`",
        )

    def _in_tree(self, run: ProbeRun) -> Iterator[Finding]:
        self._note("waiting for the end of `tree`")
        if not self._got_node(run) or not run.await_end(_WORK):
            yield self._never_began(run)
            return
        records = _Collected(run)
        yield from node_findings.tree_findings(records.record("tree"), records.record("mlflow"))

    def _failed(self, run: ProbeRun) -> Iterator[Finding]:
        self._note("waiting for the end of `fail`")
        if not self._got_node(run) or not run.await_end(_WORK):
            yield self._never_began(run)
            return
        yield from node_findings.failure_findings(run.shown())

    def _cancelled(self, run: ProbeRun) -> Iterator[Finding]:
        self._note("cancelling `hold`, to see which signals its command gets")
        if not self._got_node(run):
            yield self._never_began(run)
            return
        run.await_record("holding", _SILENT)
        run.cancel()
        run.await_end(_WORK)
        records = _Collected(run)
        yield from node_findings.cancel_findings(records.record("asked"), records.record("alive"))

    def _timed_out(self, run: ProbeRun) -> Iterator[Finding]:
        limit = self._options.limit
        self._note(f"waiting for the limit of `retried`, {limit:g} s")
        if not self._got_node(run) or not run.await_end(_WORK + 3 * limit):
            yield self._never_began(run)
            return
        records = _Collected(run)
        yield from node_findings.timeout_findings(
            run.shown(),
            limit,
            records.record("began", attempt=1),
            records.record("alive", attempt=1),
        )

    def _together(self, run: ProbeRun) -> Iterator[Finding]:
        self._note("waiting for the end of `gang`")
        if not self._got_node(run) or not run.await_end(_WORK):
            yield self._never_began(run)
            return
        records, nodes = _Collected(run), range(self._options.nodes)
        yield from node_findings.gang_findings(
            [records.record("ports", node=node) for node in nodes],
            [records.record("collectives", node=node) for node in nodes],
            (records.record("asked"), records.record("alive")),
            run.shown(),
        )


class _Collected:
    """The records of a run that has ended: those of its log, and those that it wrote to files."""

    def __init__(self, run: ProbeRun) -> None:
        self._run = run
        lines: list[str] = []
        run.lines(lines.append, follow=False)
        self._logged: dict[tuple[str, int, int], Record] = {
            (str(item["name"]), int(item["attempt"]), int(item["node"])): item
            for item in records_in(lines)
        }

    def record(self, name: str, *, attempt: int = 0, node: int = 0) -> Record | None:
        """The last of that name, whichever way it came."""
        both = [
            self._run.record(name, attempt=attempt, node=node),
            self._logged.get((name, attempt, node)),
        ]
        return max(
            (item for item in both if item is not None), key=lambda item: item["at"], default=None
        )


class _Listening:
    """Reads the log of a run while it goes on, and notes when each line came."""

    def __init__(self, run: ProbeRun) -> None:
        self.lines: list[tuple[float, str]] = []
        self._run = run
        self._thread = threading.Thread(target=self._listen, name="probe-log", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the last line."""
        self._thread.join(_SILENT)

    def cannot_write(self) -> bool:
        """Whether the node has said that it cannot write files."""
        records = records_in([line for _, line in self.lines])
        return any(item.get("name") == "node" and item.get("writes") is False for item in records)

    def _listen(self) -> None:
        with suppress(BackendError):  # a log that cannot be read is one that did not come
            self._run.lines(lambda line: self.lines.append((time.time(), line)), follow=True)


def _missing(workspace: Workspace, folder: str) -> bool:
    """Whether a staging folder is yet to be made."""
    parent, _, name = folder.rpartition("/")
    return name not in {item.name for item in workspace.area.files.list(parent)}
