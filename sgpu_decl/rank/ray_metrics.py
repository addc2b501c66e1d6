"""The monitor of a run's Ray cluster: it logs what its nodes measure to the MLflow run.

    the metrics endpoint of every node ─▶ the families of METRICS ─▶ system/ray/NAME in MLflow

`_air.py` runs it in place of a rank, as a process of its own beside the driver, if the agent asks
for it. The agent kills it when the driver has ended. It has the lowest priority, and imports MLflow
only after the first interval, so a short run pays nothing for it. A node that does not answer is
left out, and a server that takes no metrics is tried again the next time.

Ray's agent of each node serves its metrics in Prometheus' text format, with or without a dashboard.
What the families mean is said in Ray's source: `dashboard/modules/reporter/reporter_agent.py` for
those of a node, `src/ray/raylet/local_object_manager.cc` for spilling, and
`src/ray/stats/metric_defs.cc` for tasks and actors.
"""

import json
import math
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from typing import Any

_PREFIX = "system/ray"
_MEBIBYTE = float(1 << 20)
_PATIENCE = 2.0  # seconds for the answers of the nodes
_SETTLED = 60.0  # seconds after which a node's rates are right
_LONGEST = 16 << 20  # bytes of an answer; one of an idle node has 0.2 MB
_AT_ONCE = 16
_BATCH = 1000  # MAX_METRICS_PER_BATCH of MLflow
_VARIABLES = {
    "GIT_PYTHON_REFRESH": "quiet",  # git may be missing
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # MLflow tries for minutes by default if a server is down.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "8",
}

_LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")  # no label has a line break: they are escaped
_LABEL = re.compile(r'(\w+)="([^"\\]*(?:\\.[^"\\]*)*)"')


class RayMetric(NamedTuple):
    """A metric, and the family of Ray that it comes from.

    Attributes:
        name: in MLflow. `{State}` stands for the value of that label, in lower case.
        family: of Ray. Its lines that have `labels` count.
        joined: how values become one, those of a node and those of all nodes: `sum` or `mean`.
        factor: what Ray's value is multiplied by.
        of_nodes: whether there is one for each node, too. Ray counts a task where its owner is, and
            takes it off there from the count of the node that executes it. So only the sum over
            all nodes means something. Actors are counted by the first node for all.
        is_rate: whether it is left out at first. Ray takes a rate from the oldest of its last seven
            measurements, one each five seconds; the very first of them is dated 1970.
    """

    name: str
    family: str
    joined: str
    labels: "tuple[tuple[str, str], ...]" = ()
    factor: float = 1.0
    of_nodes: bool = True
    is_rate: bool = False


METRICS = (
    RayMetric("cpu_utilization_percentage", "ray_node_cpu_utilization", "mean"),
    RayMetric("cpu_count", "ray_node_cpu_count", "sum"),
    RayMetric("memory_used_bytes", "ray_node_mem_used", "sum"),
    RayMetric("memory_available_bytes", "ray_node_mem_available", "sum"),
    RayMetric("disk_read_bytes_per_second", "ray_node_disk_io_read_speed", "sum", is_rate=True),
    RayMetric("disk_write_bytes_per_second", "ray_node_disk_io_write_speed", "sum", is_rate=True),
    RayMetric(
        "network_receive_bytes_per_second", "ray_node_network_receive_speed", "sum", is_rate=True
    ),
    RayMetric("network_send_bytes_per_second", "ray_node_network_send_speed", "sum", is_rate=True),
    RayMetric("gpu_utilization_percentage", "ray_node_gpus_utilization", "mean"),
    # The unit of these is a MiB in all versions, though their description says bytes.
    RayMetric("gpu_memory_used_bytes", "ray_node_gram_used", "sum", factor=_MEBIBYTE),
    RayMetric("gpu_memory_available_bytes", "ray_node_gram_available", "sum", factor=_MEBIBYTE),
    RayMetric("object_store_used_bytes", "ray_object_store_used_memory", "sum"),
    RayMetric("object_store_available_bytes", "ray_object_store_available_memory", "sum"),
    # What is spilled now; `ray_spill_manager_objects_bytes` counts what ever was.
    RayMetric("spilled_bytes", "ray_object_store_memory", "sum", (("Location", "SPILLED"),)),
    RayMetric("tasks_{State}", "ray_tasks", "sum", of_nodes=False),
    RayMetric("actors_{State}", "ray_actors", "sum", (("Source", "gcs"),), of_nodes=False),
)
_BY_FAMILY = {metric.family: metric for metric in METRICS}
_STARTS = tuple(f"{family}{{".encode() for family in _BY_FAMILY)


def _values_of(answer: bytes) -> "dict[tuple[str, RayMetric], list[float]]":
    """Return the values in the answer of a node, by their names and what they come from.

    An answer is long, and few of its lines count. So the others are passed over by their beginning.
    """
    values: dict[tuple[str, RayMetric], list[float]] = {}
    for raw in answer.split(b"\n"):
        if not raw.startswith(_STARTS):
            continue
        line = _LINE.match(raw.decode("utf-8", "replace"))
        if line is None:
            continue
        metric = _BY_FAMILY[line[1]]
        labels: dict[str, str] = dict(_LABEL.findall(line[2]))
        try:
            value = float(line[3]) * metric.factor
        except ValueError:
            continue
        if math.isfinite(value) and all(labels.get(name) == one for name, one in metric.labels):
            name = metric.name.replace("{State}", labels.get("State", "").lower())
            values.setdefault((name, metric), []).append(value)
    return values


def cluster_values(answers: "Mapping[int, bytes]", *, rates: bool) -> "dict[str, float]":
    """Return what is logged, by its name in MLflow, from the answers of the nodes, by number.

    Args:
        rates: whether the rates of the nodes are right by now.
    """
    logged: dict[str, float] = {}
    whole: dict[tuple[str, RayMetric], list[float]] = {}
    for node, answer in sorted(answers.items()):
        for (name, metric), values in _values_of(answer).items():
            if metric.is_rate and not rates:
                continue
            whole.setdefault((name, metric), []).extend(values)
            if metric.of_nodes:
                logged[f"{_PREFIX}/node_{node}/{name}"] = _joined(metric, values)
    for (name, metric), values in whole.items():
        logged[f"{_PREFIX}/{name}"] = _joined(metric, values)
    return logged


def _joined(metric: RayMetric, values: "list[float]") -> float:
    return sum(values) / len(values) if metric.joined == "mean" else sum(values)


class RayMetricsMonitor:
    """Reads the nodes every `interval` seconds, and logs what they answer.

    Args:
        nodes: the metrics endpoint of each node, `host:port`, by its number.
        run_id: of the MLflow run; MLflow's variables say where it is.
    """

    def __init__(self, nodes: "Mapping[int, str]", interval: float, run_id: str) -> None:
        self._nodes = dict(nodes)
        self._interval = interval
        self._run_id = run_id
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._reads: dict[int, Future[bytes | None]] = {}
        self._client: Any = None
        self._said = ""

    def run(self) -> None:
        """Log until this process is killed."""
        due = start = time.monotonic()
        for step in range(sys.maxsize):
            due += self._interval
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - self._interval)  # what was missed stays missed
            moment = time.time_ns() // 1_000_000
            answers = self.read_nodes()
            values = cluster_values(answers, rates=time.monotonic() - start > _SETTLED)
            if values:
                self._log(values, moment, step)

    def read_nodes(self) -> "dict[int, bytes]":
        """Return the answers of the nodes that answer in time."""
        for node, address in self._nodes.items():
            if node not in self._reads:
                self._reads[node] = self._pool.submit(_read, address)
        wait(self._reads.values(), timeout=_PATIENCE)
        done = {node: read.result() for node, read in self._reads.items() if read.done()}
        for node in done:
            del self._reads[node]
        return {node: answer for node, answer in done.items() if answer}

    def _log(self, values: "Mapping[str, float]", moment: int, step: int) -> None:
        try:
            if self._client is None:
                self._client = import_module("mlflow").MlflowClient()
            make = import_module("mlflow.entities").Metric
            metrics = [make(name, value, moment, step) for name, value in values.items()]
            for start in range(0, len(metrics), _BATCH):
                self._client.log_batch(self._run_id, metrics=metrics[start : start + _BATCH])
        except Exception as error:  # noqa: BLE001 - stores and their drivers raise what they like
            self._say(f"the metrics of Ray could not be logged: {type(error).__name__}")

    def _say(self, text: str) -> None:
        """Say it in the log of this process, once."""
        if text != self._said:
            self._said = text
            sys.stderr.write(f"sgpu: {text}\n")
            sys.stderr.flush()


def monitor_ray() -> None:
    """Be the monitor that the agent asks for: the request is a JSON object in stdin, which has no
    name, so that the variables in it are shown nowhere."""
    with open(0, "rb", closefd=False) as stdin:
        stdin.seek(0)
        request = json.loads(stdin.read().decode("utf-8", "surrogateescape"))
    os.nice(19)
    os.environ.update({**_VARIABLES, **request["env"]})
    if find_spec("mlflow") is None:
        sys.stderr.write("sgpu: no metrics of Ray: this environment has no MLflow\n")
        return
    nodes = {int(node): address for node, address in request["nodes"].items()}
    RayMetricsMonitor(nodes, request["interval"], os.environ["MLFLOW_RUN_ID"]).run()


def _read(address: str) -> "bytes | None":
    """Return the answer of a node, None if there is none."""
    connection = HTTPConnection(address, timeout=_PATIENCE)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.read(_LONGEST) if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
