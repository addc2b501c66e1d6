"""Who waits for GPUs, and for how long."""

import threading
import time
from functools import partial
from pathlib import Path

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.executing.capacity import CapacityRequest, GpuCapacity
from sgpu_decl.testing.workspace.executing.stop_signal import StopSignal, Why
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
