"""Who waits for GPUs, and for how long."""

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.executing.capacity import CapacityRequest, GpuCapacity
from sgpu_decl.testing.workspace.executing.stop_signal import StopSignal, Why
from sgpu_decl.testing.workspace.offers import Capacity, Offers
from tests.support import until
from tests.testing.workspace.conftest import client_of
from tests.testing.workspace.executing.conftest import User


def _has_waiting(capacity: GpuCapacity, count: int) -> bool:
    return len(capacity._line["gpu"]) == count


def test_who_came_first_is_served_first() -> None:
    capacity = GpuCapacity()
    order: list[str] = []
    threads: list[threading.Thread] = []

    def come(name: str, amount: int) -> None:
        with capacity.held(CapacityRequest("gpu", amount, 4), StopSignal(), None) as got:
            assert got
            order.append(name)

    with capacity.held(CapacityRequest("gpu", 3, 4), StopSignal(), None):
        for place, (name, amount) in enumerate([("large", 4), ("small", 1)], start=1):
            threads.append(threading.Thread(target=come, args=(name, amount)))
            threads[-1].start()
            until(partial(_has_waiting, capacity, place))
        assert order == []  # there is room for the small one, but not before the large one
    for thread in threads:
        thread.join()
    assert order == ["large", "small"]


def test_waiting_ends_with_the_deadline_or_a_word() -> None:
    capacity, stopping = GpuCapacity(), StopSignal()
    with capacity.held(CapacityRequest("gpu", 1, 0), stopping, time.monotonic()) as got:
        assert not got
    stopping.ask(Why.CANCELLED)
    with capacity.held(CapacityRequest("gpu", 1, 1), stopping, None) as got:
        assert not got
    with capacity.held(CapacityRequest("gpu", 1, 1), StopSignal(), None) as got:
        assert got


def test_a_run_gives_up_when_there_are_never_gpus(tmp_path: Path) -> None:
    settings = ExecutionSettings(capacity={"GPU_1xA10": 0}, queue_timeout=0.05)
    with WorkspaceServer(tmp_path, execution=settings) as server:
        user = User(client_of(server.url, server.token()))
        run = user.ended(user.submit("echo never\n", max_retries=2))
        assert run.state.life_cycle_state.value == "INTERNAL_ERROR"
        assert "No GPU compute capacity of GPU_1xA10" in run.state.state_message
        assert run.status.termination_details.type.value == "CLOUD_FAILURE"
        assert len(run.tasks) == 1


def test_a_reservation_takes_what_fits_and_refuses_the_rest_at_once(tmp_path: Path) -> None:
    pool = Capacity(id="ours", accelerator_type="GPU_1xA10", accelerator_count=3, used=1)
    with WorkspaceServer(tmp_path, offers=Offers(capacities=(pool,))) as server:
        user = User(client_of(server.url, server.token()))
        command = user.stage(command__sh="echo up; sleep 10000\n")

        def submitted(gpus: int) -> int:
            task = user.task(command)
            (deployment,) = task["ai_runtime_task"]["deployments"]
            deployment["compute"] |= {"accelerator_count": gpus, "provisioned_capacity_id": "ours"}
            return int(user.post("runs/submit", user.payload(task))["run_id"])

        def idle() -> str:
            path = "/api/2.0/ai-training/provisioned-capacities/ours"
            answer: Any = user.client.api_client.do("GET", path)
            return str(answer["status"]["usage"]["idle_accelerator_count"])

        assert idle() == "2"
        admitted = submitted(1)
        user.says(admitted, "up")
        refused = user.ended(submitted(2))
        assert refused.state.life_cycle_state.value == "INTERNAL_ERROR"
        assert "exceeded its GPU quota for GPU_1xA10" in refused.state.state_message
        assert idle() == "1"
        user.client.jobs.cancel_run(admitted)
        user.ended(admitted)
        user.says(submitted(2), "up")
