"""Functions called on real ranks, in this process."""

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from sgpu_decl import distributed, runtime
from sgpu_decl.agent.system.processes import send_signal
from sgpu_decl.api import Location, Session
from sgpu_decl.errors import InvalidInput, NotFound
from sgpu_decl.functions.call_results import Results
from sgpu_decl.functions.running_call import DistributedFunctionCall
from tests.applying.conftest import sgpu
from tests.functions.conftest import SETTINGS
from tests.support import PATIENCE

ON_LOCAL = "project: {name: p}\nfunctions:\n  backend: local\n  mlflow: {enabled: false}\n"


def test_each_rank_returns_a_value_in_rank_order(project: Path) -> None:
    @distributed(gpus=3, gpu_type="CPU")
    def train(base: int, *, step: int = 10) -> tuple[int, int, str]:
        return base + step * runtime.get_global_rank(), runtime.get_world_size(), os.getcwd()

    result = train.distributed(5, step=2)
    assert result == [(5, 3, str(project)), (7, 3, str(project)), (9, 3, str(project))]
    assert isinstance(result, Results)
    assert "train#1" in result._repr_html_()


def test_the_code_of_calls_on_this_machine_is_not_compared(project: Path) -> None:
    @distributed(gpus=1, gpu_type="CPU")
    def train() -> None: ...

    train.distributed()
    train.distributed()

    shown = sgpu(project, "diff", "train").out
    assert "not compared: the code of `train#1` was not recorded" in shown
    assert "no difference in config, packages, results, metrics" in shown


def test_what_json_would_change_comes_back_as_it_was() -> None:
    @distributed(gpus=1, gpu_type="CPU")
    def train() -> dict[object, object]:
        return {1: (2, {3}), "pickle": "x", "repr": "y", "array": np.arange(3)}

    (value,) = train.distributed()
    assert value[1] == (2, {3})
    assert list(value["array"]) == [0, 1, 2]


def test_a_dictionary_that_looks_like_a_reference_is_itself() -> None:
    @distributed(gpus=1, gpu_type="CPU")
    def train() -> dict[str, str]:
        return {"pickle": "/nowhere", "repr": "y"}

    assert train.distributed() == [{"pickle": "/nowhere", "repr": "y"}]


def test_arrays_arrive_writable_and_are_each_ranks_own() -> None:
    weights = np.ones(100_000)

    @distributed(gpus=2, gpu_type="CPU")
    def train(data: np.ndarray) -> tuple[float, float]:
        weights[:] += runtime.get_global_rank() + 1
        data[0] = 5
        return float(weights.sum()), float(data.sum())

    data = np.zeros(50_000)
    assert train.distributed(data) == [(200_000.0, 5.0), (300_000.0, 5.0)]
    assert data[0] == 0


def test_rank_and_world_size_are_filled_in() -> None:
    @distributed(gpus=2, gpu_type="CPU")
    def train(rank: int, world_size: int, lr: float = 0.1) -> tuple[int, int, float]:
        return rank, world_size, lr

    assert train.distributed() == [(0, 2, 0.1), (1, 2, 0.1)]
    assert train.distributed(lr=1.0) == [(0, 2, 1.0), (1, 2, 1.0)]


def test_coroutines_methods_and_callables_are_called() -> None:
    class Trainer:
        rate = 3

        @distributed(gpus=1, gpu_type="CPU")
        def train(self, x: int) -> int:
            return self.rate * x

        def __call__(self, x: int) -> int:
            return self.rate - x

    @distributed(gpus=1, gpu_type="CPU")
    async def wait(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    trainer = Trainer()
    trainer.rate = 4
    assert trainer.train.distributed(5) == [20]
    assert wait.distributed(1) == [2]  # type: ignore[comparison-overlap]  # the loop ran it
    assert distributed(gpus=1, gpu_type="CPU")(trainer).distributed(1) == [3]


def test_rank_0_is_heard_and_phases_are_told_beside_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    @distributed(gpus=2, gpu_type="CPU")
    def train() -> None:
        print("from rank", runtime.get_global_rank())

    train.distributed()
    out, err = capfd.readouterr()
    assert out == "from rank 0\n"
    assert "sgpu: train#1 succeeded" in err


def test_the_attempt_is_one_as_any_other(project: Path) -> None:
    @distributed(gpus=2, gpu_type="CPU", timeout="5m")
    def train(lr: float, data: object) -> str:
        return os.environ["SGPU_ADDRESS"]

    assert train.distributed(0.1, data=np.zeros(3)) == ["run.train", "run.train"]
    folder = project / ".sgpu" / "default" / "runs" / "train" / "1"
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("func.pkl", "inputs.pkl", "_air.py", "spec.json", "outcome.json"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    assert json.loads((folder / "spec.json").read_bytes())["timeout"] == 300.0
    again = train.plan(0.2, data=np.zeros(4))
    (change,) = again.changes
    assert change.attempt == 2
    assert [(field.path, field.before, field.after) for field in change.fields] == [
        ("args.data", "<numpy.ndarray (3,)>", "<numpy.ndarray (4,)>"),
        ("args.lr", 0.1, 0.2),
    ]
    assert "args.lr" in str(again)
    assert "args.lr" in again._repr_html_()


def test_a_call_adds_little_to_what_the_one_before_it_left(project: Path) -> None:
    @distributed(gpus=1, gpu_type="CPU")
    def train(x: int) -> int:
        return x

    train.distributed(1)
    before = _files(project / ".sgpu" / "default" / "runs")
    train.distributed(2)
    added = {
        file: size
        for file, size in _files(project / ".sgpu" / "default" / "runs").items()
        if file not in before
    }
    assert sum(added.values()) < 20_000


def _files(folder: Path) -> dict[int, int]:
    """Bytes by inode: what is shared counts once."""
    seen = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return {item.st_ino: item.st_size for item in seen}


def test_a_plan_starts_nothing(project: Path) -> None:
    @distributed(gpus=2, gpu_type="CPU")
    def train() -> None: ...

    train.plan()
    assert not (project / ".sgpu").exists()


def test_a_call_goes_on_while_the_caller_does(project: Path) -> None:
    @distributed(gpus=1, gpu_type="CPU", run_async=True)
    def train(path: str) -> int:
        with open(path, encoding="utf-8") as file:  # a pipe: it blocks until somebody writes
            return int(file.read())

    pipes = [project / "a", project / "b"]
    for pipe in pipes:
        os.mkfifo(pipe)

    calls = [train.distributed(str(pipe)) for pipe in pipes]
    assert [call.run_id for call in calls] == ["train#1", "train#2"]
    assert all(call.status.active for call in calls)
    for number, pipe in enumerate(pipes):
        pipe.write_text(str(number))
    found: DistributedFunctionCall[Results[int]] = DistributedFunctionCall.from_run_id("train#2")
    assert found.result(timeout=PATIENCE) == [1]

    async def both() -> list[list[int]]:
        return list(await asyncio.gather(*calls))

    assert asyncio.run(both()) == [[0], [1]]
    assert calls[0].status.state == "succeeded"
    assert "train#1" in calls[0]._repr_html_()


def test_logs_of_a_call_are_text() -> None:
    @distributed(gpus=2, gpu_type="CPU", run_async=True)
    def train() -> None:
        print("I am", runtime.get_global_rank())

    call = train.distributed()
    call.result(timeout=PATIENCE)
    assert call.logs() == "I am 0\n"
    assert sorted(call.logs(None).splitlines()) == ["[0] I am 0", "[1] I am 1"]


def test_a_call_is_cancelled(project: Path) -> None:
    @distributed(gpus=2, gpu_type="CPU", run_async=True)
    def train() -> None:
        threading.Event().wait()

    call = train.distributed()
    call.cancel()
    assert call.wait(timeout=PATIENCE).state == "cancelled"
    with pytest.raises(Exception, match="`train#1` was cancelled"):
        call.result()


def test_a_cancelled_call_ends_though_its_supervisor_does_not_answer(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "sgpu.yml").write_text(f"{SETTINGS.rstrip()[:-1]}, grace: 100ms}}\n")

    @distributed(gpus=1, gpu_type="CPU", run_async=True)
    def train() -> None:
        threading.Event().wait()

    call = train.distributed()
    folder = project / ".sgpu/default/runs/train/1"
    while not (folder / "identity.json").exists():
        os.sched_yield()
    known = json.loads((folder / "identity.json").read_text())
    os.kill(known["pid"], signal.SIGSTOP)
    try:
        call.cancel()
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600)  # nobody waits for 30 s
        assert call.wait().state == "cancelled"
    finally:
        send_signal(known["pid"], known["start_time"], signal.SIGKILL)
    assert "train#1: its supervisor" in capsys.readouterr().err


def test_parallel_calls_of_many_threads_all_launch() -> None:
    @distributed(gpus=1, gpu_type="CPU", run_async=True)
    def train(x: int) -> int:
        return x

    found: list[DistributedFunctionCall[Results[int]]] = []
    threads = [
        threading.Thread(target=lambda at=at: found.append(train.distributed(at)))
        for at in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(call.result(timeout=PATIENCE)[0] for call in found) == list(range(6))
    assert len({call.run_id for call in found}) == 6


def test_a_remote_call_needs_a_type(project: Path) -> None:
    (project / "sgpu.yml").write_text(ON_LOCAL)

    @distributed(gpus=2, remote=True)
    def train() -> None: ...

    with pytest.raises(InvalidInput, match="`gpu_type` is missing") as caught:
        train.distributed()
    assert caught.value.hint == "add `gpu_type`"


def test_a_remote_call_runs_on_the_backend_of_the_project(project: Path) -> None:
    (project / "sgpu.yml").write_text(ON_LOCAL)

    @distributed(gpus=2, gpu_type="CPU", remote=True)
    def train() -> int:
        return runtime.get_global_rank()

    assert train.distributed() == [0, 1]


def test_remote_calls_beyond_the_limit_wait_and_say_so(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "sgpu.yml").write_text(ON_LOCAL + "  max_parallel: 1\n")
    pipe = project / "pipe"
    os.mkfifo(pipe)

    @distributed(gpus=1, gpu_type="CPU", remote=True, run_async=True)
    def first() -> str:
        return pipe.read_text()

    @distributed(gpus=1, gpu_type="CPU", remote=True)
    def second() -> int:
        return 2

    call = first.distributed()
    assert Session.open(Location(project=project)).runs.active_calls("local") == 1
    shown = json.loads(sgpu(project, "show", "first", "-o", "json").out)
    assert shown["data"]["history"][0]["function"] == "first"
    done: list[object] = []
    waiting = threading.Thread(target=lambda: done.append(second.distributed()))
    waiting.start()
    while not (reason := _waits_for("second#1")):
        assert waiting.is_alive()
    assert reason == "max_parallel"
    pipe.write_text("go")
    waiting.join()
    assert (call.result(timeout=PATIENCE), done) == (["go"], [[2]])


def _waits_for(run_id: str) -> object:
    try:
        found: DistributedFunctionCall[object] = DistributedFunctionCall.from_run_id(run_id)
    except NotFound:  # not launched yet
        return None
    return found.status.run.get("waiting_for")
