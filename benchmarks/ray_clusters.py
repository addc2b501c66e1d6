"""The Ray cluster of a run: beside `ray start` by hand, beside its driver alone, and its metrics.

Runs and starts by hand alternate. Both have the same nodes with the same options; what is compared
is how long it takes until Ray lists them all.
"""

import http.server
import json
import os
import secrets
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from measuring import Row
from ray_by_hand import MEMORY, NODES

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.host.host_spec import write_entrypoint
from sgpu_decl.rendering.spec import Entry, LaunchSpec, RaySpec

__all__ = ["ray_clusters"]

ROUNDS = 3
BY_HAND = Path(__file__).with_name("ray_by_hand.py")
NOTE = """
import os, time
def note(word):
    with open(os.environ["BENCH_OUT"] + "/" + word, "w") as file:
        file.write(repr(time.monotonic()))
note("up")
"""
# A task that does not listen to SIGTERM is at work when the driver ends.
DRIVER = (
    NOTE
    + """
import ray
ray.init(log_to_driver=False)
@ray.remote
def busy():
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("busy")
    while True: pass
busy.remote()
while not os.path.exists(os.environ["BENCH_OUT"] + "/busy"):
    time.sleep(0.01)
note("end")
os._exit(0)
"""
)
BE_MONITOR = "from sgpu_decl.rank.ray_metrics import monitor_ray; monitor_ray()"
MEASURED_NODES = 16
LOOKS = 20
ANSWERS = Path(__file__).resolve().parents[1] / "tests" / "rank" / "ray_answers"
ANSWER_BYTES = 300_000  # of a node at work, with Ray 2.60


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Times in seconds: `complete`, `joining` and `head_ready` are events of the agents."""

    started: float
    head_ready: float
    joining: float
    complete: float
    driver: float
    driver_ended: float
    returned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """Seconds; `stopped` is None where `ray stop` would end other clusters, too."""

    started: float
    stopped: float | None


def ray_clusters(scratch: Path) -> Iterator[Row]:
    if find_spec("ray") is None:
        print("Ray is not installed: no figures about it")
        return
    runs: list[Run] = []
    quickly: list[ByHand] = []
    waiting: list[ByHand] = []
    alone: list[float] = []
    for number in range(ROUNDS):
        runs.append(_run(scratch / f"ray-{number}"))
        quickly.append(_by_hand("quickly", scratch / f"quick-{number}"))
        waiting.append(_by_hand("waiting", scratch / f"wait-{number}"))
        alone.append(_alone(scratch / f"alone-{number}"))
    starts = [run.complete - run.started for run in runs]
    yield _compare(
        f"a Ray cluster of {NODES} nodes on this machine",
        starts,
        "`ray start --head`, then `ray start --address`",
        [times.started for times in quickly],
        limit=1.0,
    )
    yield _compare(
        "the same",
        starts,
        "the steps of `ray_launch` in serverless_gpu, with their sleeps",
        [times.started for times in waiting],
        limit=0.5,
    )
    yield _within(
        "the head is ready, to the start of the join",
        [run.joining - run.head_ready for run in runs],
        0.05,
    )
    yield _compare(
        "the cluster is complete, to the driver's first line",
        [run.driver - run.complete for run in runs],
        "the same program alone",
        alone,
        limit=None,
    )
    ends = [run.returned - run.driver_ended for run in runs]
    yield _within("the driver's end, with a busy task, to the end of all", ends, 2.0)
    stops = [times.stopped for times in quickly if times.stopped is not None]
    if stops:
        yield _compare("the same", ends, "`ray stop` of an idle cluster", stops, limit=0.35)
    else:
        print("no PID namespace is allowed here: `ray stop` is not measured")
    if find_spec("mlflow") is not None:
        yield _metrics(scratch / "metrics")


def _run(folder: Path) -> Run:
    """Run a driver with a cluster: two agents, as a platform starts them on its nodes."""
    code, output = folder / "code", folder / "output"
    code.mkdir(parents=True)
    output.mkdir()
    (code / "main.py").write_text(DRIVER)
    (folder / "agent.zip").write_bytes(agent_zip()[1])
    spec = LaunchSpec(
        token=f"bench-{os.getpid()}-{folder.name}",
        address="run.bench",
        name="bench",
        attempt=1,
        lineage="bench",
        project_dir=str(folder),
        run_dir=str(folder),
        output_dir=str(output),
        code_dir=str(code),
        world_size=NODES,
        per="node",
        entry=Entry(kind="script", path="main.py"),
        python=sys.executable,
        port_lock_dir=host_lock_folder("ports"),
        env={"BENCH_OUT": str(output)},
        control_key=secrets.token_hex(32),
        ray=RaySpec(num_gpus=0, num_cpus=1, object_store_memory=MEMORY),
    )
    write_entrypoint(folder, spec, folder.parent / "shared")
    port, lock = claim_port(host_lock_folder("ports"), os.getpid())
    started = time.monotonic()
    agents = [
        subprocess.Popen(
            [sys.executable, folder / "agent.zip", "--spec", folder / "spec.json",
             "--node-rank", str(number), "--nodes", str(NODES),
             "--master-addr", "127.0.0.1", "--master-port", str(port)],
            stdin=subprocess.DEVNULL,
        )
        for number in range(NODES)
    ]  # fmt: skip
    codes = [agent.wait() for agent in agents]
    returned = time.monotonic()
    os.close(lock)
    if any(codes):
        sys.exit(f"a run with a Ray cluster failed: {(folder / 'outcome.json').read_text()}")
    events = _events(folder)
    run = Run(
        started=started,
        head_ready=events["ray_head_ready"],
        joining=_events(folder / "nodes" / "1")["ray_joining"],
        complete=events["ray_complete"],
        driver=float((output / "up").read_text()),
        driver_ended=float((output / "end").read_text()),
        returned=returned,
    )
    shutil.rmtree(folder)
    return run


def _events(folder: Path) -> dict[str, float]:
    lines = (folder / "events.log").read_text().splitlines()
    events = [json.loads(line.partition(" ")[2]) for line in lines]
    return {event["event"]: event["mono_ns"] / 1e9 for event in events}


def _by_hand(how: str, folder: Path) -> ByHand:
    """The same nodes by Ray's own commands: see `ray_by_hand`."""
    folder.mkdir()
    command = [*_alone_among_processes(), sys.executable, BY_HAND, how, str(folder)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        sys.exit(f"`ray start` failed:\n{done.stdout}{done.stderr}")
    return ByHand(**json.loads(done.stdout.splitlines()[-1]))


@cache
def _alone_among_processes() -> tuple[str, ...]:
    """The command that starts another as process 1 of a PID namespace; none where that is not
    allowed."""
    command = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return command


def _alone(folder: Path) -> float:
    """Run the first lines of the driver in an interpreter of its own."""
    folder.mkdir()
    environ = {**os.environ, "BENCH_OUT": str(folder)}
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", NOTE], env=environ, check=True)
    seconds = float((folder / "up").read_text()) - started
    shutil.rmtree(folder)
    return seconds


def _metrics(folder: Path) -> Row:
    """The monitor beside a driver, with nodes that give the recorded answer of a real one."""
    folder.mkdir()
    store = f"sqlite:///{folder / 'mlflow.db'}"
    os.environ.update(GIT_PYTHON_REFRESH="quiet", MLFLOW_DISABLE_TELEMETRY="true")
    from mlflow import MlflowClient

    run = MlflowClient(store).create_run("0").info.run_id
    environ = {"MLFLOW_TRACKING_URI": store, "MLFLOW_RUN_ID": run}
    with _nodes() as nodes, tempfile.TemporaryFile("w") as request:
        json.dump({"nodes": nodes, "interval": 0.5, "env": environ}, request)
        request.flush()
        monitor = subprocess.Popen([sys.executable, "-c", BE_MONITOR], stdin=request)
        try:
            first, before = _looks(folder, monitor, 2), _processor_seconds(monitor.pid)
            last = _looks(folder, monitor, first + LOOKS)
            spent = _processor_seconds(monitor.pid) - before
        finally:
            monitor.kill()
            monitor.wait()
    share = spent / (last - first) / 10.0
    return Row(
        what=f"the metrics of {MEASURED_NODES} Ray nodes, each 10 s",
        took=f"{share * 100:.2f} % of a core",
        against="1 % of a core",
        ratio=share / 0.01,
        limit=1.0,
    )


def _looks(folder: Path, monitor: "subprocess.Popen[bytes]", least: int) -> int:
    """Wait until the monitor has logged so often; return how often by then."""
    with closing(sqlite3.connect(folder / "mlflow.db")) as store:
        while True:
            query = "SELECT count(*) FROM metrics WHERE key = 'system/ray/cpu_count'"
            (count,) = store.execute(query).fetchone()
            if count >= least:
                return int(count)
            if monitor.poll() is not None:
                sys.exit(f"the monitor of Ray's metrics ended with {monitor.returncode}")
            time.sleep(0.05)


@contextmanager
def _nodes() -> Iterator[dict[str, str]]:
    """Endpoints of as many nodes: the recorded answer, with as much else as a real one has."""
    answer = max(ANSWERS.glob("*.txt")).read_text()
    other = "".join(line for line in answer.splitlines(keepends=True) if "ray_resources" in line)
    other = other.replace("ray_resources", "ray_grpc_server_req_process_time_ms_bucket")
    body = (answer + other * ((ANSWER_BYTES - len(answer)) // len(other))).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        yield {str(number): address for number in range(MEASURED_NODES)}
    finally:
        server.shutdown()
        server.server_close()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _compare(
    what: str, own: Sequence[float], name: str, other: Sequence[float], *, limit: float | None
) -> Row:
    mine, theirs = statistics.median(own), statistics.median(other)
    return Row(
        what=what,
        took=f"{mine:.2f} s",
        against=f"{name}, {theirs:.2f} s, n={len(own)}",
        ratio=mine / theirs,
        limit=limit,
    )


def _within(what: str, own: Sequence[float], most: float) -> Row:
    middle = statistics.median(own)
    return Row(
        what=what,
        took=f"{middle * 1000:.0f} ms",
        against=f"{most * 1000:.0f} ms, n={len(own)}",
        ratio=middle / most,
        limit=1.0,
    )
