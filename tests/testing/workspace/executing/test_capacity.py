"""Who waits for GPUs, and for how long."""

import threading
import time
from pathlib import Path

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.executing.capacity import Asked, Capacity
from sgpu_decl.testing.workspace.executing.stopping import Stopping, Why
from tests.testing.workspace.conftest import client_of
from tests.testing.workspace.executing.conftest import User, until


def test_who_came_first_is_served_first() -> None:
    capacity = Capacity()
    order: list[str] = []
    threads: list[threading.Thread] = []

    def come(name: str, amount: int) -> None:
        with capacity.held(Asked("gpu", amount, 4), Stopping(), None) as got:
            assert got
            order.append(name)

    with capacity.held(Asked("gpu", 3, 4), Stopping(), None):
        for place, (name, amount) in enumerate([("large", 4), ("small", 1)], start=1):
            threads.append(threading.Thread(target=come, args=(name, amount)))
            threads[-1].start()
            until(lambda place=place: len(capacity._line["gpu"]) == place)
        assert order == []  # there is room for the small one, but not before the large one
    for thread in threads:
        thread.join()
    assert order == ["large", "small"]


def test_waiting_ends_with_the_deadline_or_a_word() -> None:
    capacity, stopping = Capacity(), Stopping()
    with capacity.held(Asked("gpu", 1, 0), stopping, time.monotonic()) as got:
        assert not got
    stopping.ask(Why.CANCELLED)
    with capacity.held(Asked("gpu", 1, 1), stopping, None) as got:
        assert not got
    with capacity.held(Asked("gpu", 1, 1), Stopping(), None) as got:
        assert got


def test_a_run_gives_up_when_there_are_never_gpus(tmp_path: Path) -> None:
    settings = ExecutionSettings(capacity={"GPU_1xA10": 0}, queue_timeout=0.05)
    with WorkspaceServer(tmp_path, execution=settings) as server:
        user = User(client_of(server.url, "dapi" + "1" * 32))
        run = user.ended(user.submit("echo never\n", max_retries=2))
        assert run.state.life_cycle_state.value == "INTERNAL_ERROR"
        assert "No GPU compute capacity of GPU_1xA10" in run.state.state_message
        assert run.status.termination_details.type.value == "CLOUD_FAILURE"
        assert len(run.tasks) == 1
