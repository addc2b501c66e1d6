"""From the records of a probe to findings: pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sgpu_decl.agent.probe.probe_report import LONG_LINE_MARK
from sgpu_decl.backends.databricks.conformance.comparison import compared
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.model.assumptions import PLATFORM_VARIABLES
from sgpu_decl.model.doctor_finding import Finding, ok, warn

_ROOM = 20 << 30  # bytes; less is too little for an environment with torch and its code
_BEAT = 0.5  # seconds between the signs of life of a node that is to be killed
_OF_RUNS = ("CODE_SOURCE_PATH", "HYPERPARAMETERS_PATH")
"""Variables that the platform sets only for runs with code, or with parameters."""

Record = Mapping[str, Any]


def node_findings(node: Record, *, secret: str | None, base: str | None) -> Iterator[Finding]:
    """What the first record of a node says.

    Args:
        secret: which one was to be resolved, as `scope/key`.
        base: the base environment that the probe asked for.
    """
    yield ok(
        "node",
        f"{node['kernel']}, user {node['uid']}, {node['cpus']} CPUs, "
        f"{size(node['memory_bytes'])} of memory, {node['gpus']} GPUs",
    )
    source = str(node["bash_source"])
    yield compared(
        "node-bash-source",
        source.endswith("/command.sh"),
        f"BASH_SOURCE of the command is `{source}`",
    )
    yield compared(
        "node-python",
        ".".join(str(node["python_version"]).split(".")[:2]),
        f"`python3` is {node['python_version']}, `{node['python']}`",
    )
    yield from _torch(node, base)
    refused = {name: word for name, word in node["features"].items() if word != "ok"}
    yield compared(
        "node-system-calls",
        tuple(sorted(set(node["features"]) - set(refused))),
        "nodes allow every system call that the agent uses"
        if not refused
        else "nodes refuse " + ", ".join(f"{name} ({word})" for name, word in refused.items()),
    )
    free = int(node["free_bytes"])
    yield ok(
        "node-room",
        f"{size(free)} are free for the environment and the code of a run",
        unless=None if free >= _ROOM else "keep `env` and `code` small; read data from a volume",
    )
    names = tuple(str(name) for name in node["variables"])
    yield compared(
        "node-variables",
        tuple(name for name in names if name.startswith((*PLATFORM_VARIABLES, *_OF_RUNS))),
        f"variables of nodes: {', '.join(names)}",
    )
    if secret is not None:
        resolved = bool(node.get("secret"))
        words = "is" if resolved else "is not"
        yield compared("node-secrets", resolved, f"the secret `{secret}` {words} resolved on nodes")
    problem = node.get("write_problem")
    yield compared(
        "back-writable",
        bool(node["writes"]),
        f"nodes cannot write to the launch folder: {problem}"
        if problem
        else "nodes write to the launch folder",
    )


def _torch(node: Record, base: str | None) -> Iterator[Finding]:
    has, managed = bool(node["torch"]), bool(node["managed_torch"])
    where = "`python3` has torch" if has else "`python3` has no torch"
    if managed:
        where += "; the platform's managed environment has it"
    if base is not None and base.startswith("ai-"):
        yield compared("ai-base-python", has, f"with `env.base: {base}`, {where}")
        return
    advice = None if has else "declare torch in `env`, or use an `env.base` that has it"
    yield ok("node-torch", where, unless=advice)


def visibility_findings(
    put_at: float, pong: Record | None, answered_at: float
) -> Iterator[Finding]:
    """How long a file took to be seen on the other side. The sum of both ways does not depend on
    clocks; how it is divided does.

    Args:
        put_at: when the file was uploaded, by the clock here.
        pong: the node's answer to it.
        answered_at: when that was seen here, by the clock here.
    """
    if pong is None or not pong.get("seen"):
        yield compared(
            "upload-visible-seconds", None, "a file that was uploaded was never seen on the node"
        )
        return
    both = answered_at - put_at
    there = min(max(0.0, float(pong["at"]) - put_at), both)
    yield compared(
        "upload-visible-seconds", round(there, 1), f"nodes see an upload after {there:.1f} s"
    )
    yield compared(
        "back-visible-seconds",
        round(both - there, 1),
        f"what nodes write is seen here after {both - there:.1f} s",
    )


def library_findings(
    sdk: Record | None, mlflow: Record | None, index: Record | None
) -> Iterator[Finding]:
    """What libraries of the base environment can do with the credentials that are there, and
    whether pip reaches an index."""
    if sdk is not None and sdk.get("there", True):
        works = bool(sdk.get("works"))
        how = f" (`{sdk['auth_type']}`)" if sdk.get("auth_type") else ""
        text = f"the SDK finds credentials on nodes{how}" if works else _failed("the SDK", sdk)
        yield compared("node-credentials", works, text)
    elif sdk is not None:
        yield ok("node-sdk", _failed("the SDK", sdk))
    if mlflow is not None:
        logged = bool(mlflow.get("param") and mlflow.get("artifact"))
        if logged:
            text = "a parameter and an artifact were logged to the MLflow run"
            text += f" (artifacts are `{mlflow.get('artifact_scheme')}:`)"
        elif mlflow.get("param"):
            text = f"a parameter was logged, and no artifact: {_failed('MLflow', mlflow)}"
        else:
            text = _failed("MLflow", mlflow)
        yield compared("node-mlflow", logged, text)
    if index is not None:
        reached = bool(index.get("works"))
        words = "reaches" if reached else "does not reach"
        yield compared("node-index", reached, f"pip on a node {words} its package index")


def tree_findings(tree: Record | None, mlflow: Record | None) -> Iterator[Finding]:
    """What MLflow can do in a locked environment: that it was made there, and what MLflow said."""
    problem = "the node says nothing" if tree is None else tree.get("problem")
    if problem or mlflow is None:
        yield warn(
            "node-mlflow-tree",
            f"the locked environment was not made on the node: {problem}",
            "`env.lock` and `env.snapshot` fail likewise there; try again with `--only tree`",
        )
        return
    logged = bool(mlflow.get("param") and mlflow.get("artifact"))
    text = "a parameter and an artifact were logged" if logged else _failed("MLflow", mlflow)
    yield compared("node-mlflow-tree", logged, f"in a locked environment, {text}")


def _failed(what: str, answer: Record) -> str:
    if not answer.get("there", True):
        return f"the node's Python has no library for {what}"
    return f"{what} fails: {answer.get('error', 'it says nothing')}"


def log_findings(lines: Sequence[tuple[float, str]], ready: Record | None) -> Iterator[Finding]:
    """What came of the log, and when.

    Args:
        lines: with the times by this machine's clock when they came.
        ready: a record that was written to the log.
    """
    if not lines:
        yield warn(
            "node-logs",
            "no line of the log came, neither from the log service nor from MLflow",
            "ask an admin of the workspace whether logs of AI Runtime are kept",
        )
        return
    if ready is not None:
        came = [at for at, line in lines if '"name": "ready"' in line]
        if came:
            late = max(0.0, came[0] - float(ready["at"]))
            yield compared(
                "log-delay-seconds", round(late, 1), f"lines of the log come after {late:.1f} s"
            )
    mark = LONG_LINE_MARK
    longest = max((len(line) for _, line in lines if line.startswith(mark)), default=0)
    whole = any(line.startswith(mark) and line.endswith(mark) for _, line in lines)
    yield compared(
        "log-line-bytes",
        longest,
        f"the longest line came with {longest:,} bytes{'' if whole else ', and without its end'}",
    )


def failure_findings(run: Record) -> Iterator[Finding]:
    """How the platform names a command that exits with 3."""
    task = _newest(run)
    state, details = task.get("state") or {}, _details(task) or _details(run)
    code = str(details.get("code") or "none")
    yield compared(
        "user-failure-code",
        code,
        f"`exit 3` is {code}, of the type {details.get('type')}, "
        f"{state.get('life_cycle_state')}/{state.get('result_state')}",
    )


def cancel_findings(term: Record | None, alive: Record | None) -> Iterator[Finding]:
    """What reached the command of a run that was cancelled."""
    yield compared(
        "cancel-sends-term",
        term is not None,
        "SIGTERM comes when a run is cancelled"
        if term is not None
        else "no SIGTERM comes when a run is cancelled",
    )
    if term is not None:
        last = float((alive or {}).get("since_asked") or 0.0)
        grace = round(last + _BEAT / 2)
        text = f"SIGKILL comes {grace} s after SIGTERM, to the second"
        yield compared("cancel-grace-seconds", grace, text)


def timeout_findings(
    run: Record, limit: float, began: Record | None, alive: Record | None
) -> Iterator[Finding]:
    """Whether the limit of a run is for each attempt, or for all.

    Args:
        limit: the limit, in seconds; the first attempt failed after two thirds of it.
        began: that the second attempt began.
        alive: its last sign of life.
    """
    timed_out = str((run.get("state") or {}).get("result_state")) == "TIMEDOUT"
    if began is None and not timed_out:
        yield warn(
            "timeout-per-attempt",
            "a run with a retry ended without a second attempt, and not by its limit",
            "`retry: {on: [infra]}` may start nothing again in this workspace",
        )
        return
    duration = float((alive or {}).get("for") or 0.0)
    each = duration > 0.7 * limit
    yield compared(
        "timeout-per-attempt",
        each,
        f"a limit of {limit:g} s left {duration:.0f} s to the second attempt, after"
        f" {limit * 2 / 3:.0f} s of the first",
    )


def gang_findings(
    ports: Sequence[Record | None],
    collectives: Sequence[Record | None],
    survivor: tuple[Record | None, Record | None],
    run: Record,
) -> Iterator[Finding]:
    """What two nodes could do together, by what each of them says.

    Args:
        ports: their records of that name.
        collectives: also.
        survivor: records of the node that did not fail: of SIGTERM, and its last sign of life.
        run: as the Jobs API shows it at the end.
    """
    for id_, which, words in (
        ("node-address", "master", "MASTER_PORT of the first node"),
        ("node-ports", "other", "another port of the first node"),
    ):
        answers = [(port or {}).get(which) or {} for port in ports]
        open_ = all(item.get("open") for item in answers)
        why = next((f": {item['error']}" for item in answers if item.get("error")), "")
        yield compared(id_, open_, f"{words} is {'reached' if open_ else f'not reached{why}'}")
    for backend in ("gloo", "nccl") if all(collectives) else ():
        yield _collective(
            backend, [(collective or {}).get(backend) or {} for collective in collectives]
        )
    term, alive = survivor
    stopped = term is not None
    lived = float((alive or {}).get("since_asked") or 0.0)
    yield compared(
        "failed-node-stops-others",
        stopped,
        f"when a node fails, the others get SIGTERM, and SIGKILL {lived:.1f} s later"
        if stopped
        else f"when a node fails, the others get no SIGTERM; the run ended as "
        f"{(run.get('state') or {}).get('result_state')}",
    )


def _collective(backend: str, answers: Sequence[Record]) -> Finding:
    skipped = next((item["skipped"] for item in answers if item.get("skipped")), None)
    if not all(item.get("there", True) for item in answers):
        skipped = "the node's Python has no torch"
    if skipped is not None:
        return warn(
            f"node-{backend}",
            f"{backend} was not tried: {skipped}",
            "probe with a `--base` that has torch" if "torch" in skipped else None,
        )
    works = all(item.get("works") for item in answers)
    why = next((str(item["error"]) for item in answers if item.get("error")), "its sum is wrong")
    return compared(
        f"node-{backend}",
        works,
        f"an all-reduce by {backend} over both nodes {'works' if works else f'fails: {why}'}",
    )


def _newest(run: Record) -> Record:
    tasks = run.get("tasks") or ()
    return max(tasks, key=lambda task: int(task.get("attempt_number") or 0), default={})


def _details(of: Record) -> Record:
    return (of.get("status") or {}).get("termination_details") or {}
