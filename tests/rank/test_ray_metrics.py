"""What the monitor of a Ray cluster logs, out of answers that nodes of both versions gave.

The answers are recorded ones, of one node with 2 CPUs, cut to the families beside those that count.
An actor was alive, 160 MB of objects had been put into a store of 100 MB, and of four tasks that
sleep on one CPU each, two ran in 2.60 and one in 2.49. A machine with GPUs was not recorded: their
lines have the form that `reporter_agent.py` of Ray gives them.
"""

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.rank.ray_metrics import METRICS, RayMetricsMonitor, cluster_values
from tests.http_servers import QuietThreadingServer
from tests.support import check_golden, until

DOCS = Path(__file__).parents[2] / "docs/ray.md"
ANSWERS = Path(__file__).parent / "ray_answers"
NODE = 'ray_node_{}{{GpuDeviceName="NVIDIA H100",GpuIndex="{}",ip="192.0.2.2"}} {}\n'


def _answer(version: str) -> bytes:
    return (ANSWERS / f"{version}.txt").read_bytes()


@pytest.mark.parametrize(
    ("version", "spilled", "running", "waiting"),
    [("2.60.0", 160000024.0, 2.0, 2.0), ("2.49.1", 100000015.0, 1.0, 3.0)],
)
def test_an_answer_of_each_version_gives_every_metric_of_a_machine_without_gpus(
    version: str, spilled: float, running: float, waiting: float
) -> None:
    values = cluster_values({3: _answer(version)}, rates=True)
    for metric in METRICS:
        if "{State}" not in metric.name and not metric.name.startswith("gpu_"):
            assert values[f"system/ray/{metric.name}"] == values[f"system/ray/node_3/{metric.name}"]
    assert values["system/ray/cpu_count"] == 2.0
    assert values["system/ray/cpu_utilization_percentage"] == 100.0
    assert values["system/ray/spilled_bytes"] == spilled
    assert values["system/ray/tasks_running"] == running
    assert values["system/ray/tasks_pending_node_assignment"] == waiting
    assert values["system/ray/tasks_submitted_to_worker"] == 0.0  # the owner's less the executor's
    assert values["system/ray/actors_alive"] == 1.0
    assert "system/ray/actors_idle" not in values  # the same actor, as its worker counts it


def test_nodes_are_added_up_or_averaged() -> None:
    one, two = _answer("2.60.0"), _answer("2.60.0").replace(b"} 100.0\n", b"} 50.0\n")
    values = cluster_values({0: one, 1: two}, rates=True)
    assert values["system/ray/node_1/cpu_utilization_percentage"] == 50.0
    assert values["system/ray/cpu_utilization_percentage"] == 75.0
    assert values["system/ray/cpu_count"] == 4.0
    assert values["system/ray/tasks_running"] == 4.0
    assert not [name for name in values if "node_0/tasks" in name or "node_0/actors" in name]


def test_gpus_are_averaged_by_device_and_their_memory_is_in_bytes() -> None:
    def gpus(*used: tuple[int, int]) -> bytes:
        lines = ""
        for index, (percentage, mebibytes) in enumerate(used):
            lines += NODE.format("gpus_utilization", index, percentage)
            lines += NODE.format("gram_used", index, mebibytes)
            lines += NODE.format("gram_available", index, 81559 - mebibytes)
        return lines.encode()

    values = cluster_values({0: gpus((90, 1024), (30, 0)), 1: gpus((0, 0))}, rates=True)
    assert values["system/ray/node_0/gpu_utilization_percentage"] == 60.0
    assert values["system/ray/gpu_utilization_percentage"] == 40.0
    assert values["system/ray/gpu_memory_used_bytes"] == 1 << 30
    assert values["system/ray/node_1/gpu_memory_available_bytes"] == 81559 << 20


def test_rates_are_left_out_while_ray_dates_the_first_measurement_1970() -> None:
    names = cluster_values({0: _answer("2.60.0")}, rates=False)
    assert "system/ray/cpu_count" in names
    assert not [name for name in names if name.endswith("per_second")]


def test_a_name_of_a_task_cannot_be_taken_for_its_state() -> None:
    name = r"x} 7\" State=\"FAILED\",\\"
    line = f'ray_tasks{{Component="core_worker",Name="{name}",State="RUNNING"}} 3.0\n'
    assert cluster_values({0: line.encode()}, rates=True) == {"system/ray/tasks_running": 3.0}


@pytest.mark.parametrize("answer", [
    b"", b"\xff\xfe\x00", b"<html>no</html>", b"ray_node_cpu_count", b"ray_node_cpu_count{",
    b'ray_node_cpu_count{ip="a"} many', b'ray_node_cpu_count{ip="a"} NaN',
    b'ray_node_cpu_count{ip="a"} +Inf', b'ray_node_cpu_count_more{ip="a"} 3',
])  # fmt: skip
def test_what_is_no_answer_gives_nothing(answer: bytes) -> None:
    assert cluster_values({0: answer}, rates=True) == {}


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    head = "|---|---|---|\n"
    before, title, after = DOCS.read_text().partition(
        f"| NAME | Ray's name | value for the whole cluster |\n{head}"
    )
    rows = ""
    for metric in METRICS:
        labels = ",".join(f'{name}="{value}"' for name, value in metric.labels)
        family = f"{metric.family}{{{labels}}}" if labels else metric.family
        name = metric.name.replace("{State}", "STATE")
        joined = metric.joined if metric.of_nodes else f"{metric.joined}; no values of single nodes"
        rows += f"| `{name}` | `{family}` | {joined} |\n"
    rest = after[after.index("\n\n") + 1 :] if after.startswith("|") else after
    check_golden(DOCS, before + title + rows + rest)


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server that answers as Ray's agent of a node does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(_answer("2.60.0"))

        def log_message(self, *_: object) -> None:
            pass

    server = QuietThreadingServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.expensive
def test_a_node_that_does_not_answer_is_left_out(endpoint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nodes = {
            0: endpoint,
            1: f"127.0.0.1:{silent.getsockname()[1]}",
            2: f"127.0.0.1:{closed.getsockname()[1]}",
        }
        monitor = RayMetricsMonitor(nodes, 1.0, "run")
        until(lambda: monitor.read_nodes() == {0: _answer("2.60.0")})
