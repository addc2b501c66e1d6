"""`train.map`: one call for each set of arguments."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import assert_type

import pytest

from sgpu_decl import distributed
from sgpu_decl.errors import InvalidInput, NotFound
from sgpu_decl.functions import call_map
from sgpu_decl.functions.call_results import CallRow, CallTable, Results
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.run_table import RunRow, RunTable
from tests.support import PATIENCE, until


@distributed(gpus=1, gpu_type="CPU")
def train(lr: float, seed: int = 1) -> dict[str, float]:
    if lr > 1:
        raise ValueError(f"too large: {lr}")
    print("trains", lr)
    return {"loss": lr * 2}


def test_a_sweep_is_a_table_and_keeps_the_others_when_one_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = train.map([{"lr": 0.1}, {"lr": 2}, {"lr": 0.3, "seed": 2}], max_parallel=1)
    assert_type(table, CallTable[Results[dict[str, float]]])
    assert table.results == [[{"loss": 0.2}], None, [{"loss": 0.6}]]
    assert [(row.attempt, row.state) for row in table] == [
        ("train#1", AttemptState.SUCCEEDED),
        ("train#2", AttemptState.FAILED),
        ("train#3", AttemptState.SUCCEEDED),
    ]
    (failed,) = table.failed
    assert failed.arguments == {"lr": 2}
    assert isinstance(failed.error, ValueError)
    assert failed.seconds is not None
    lines = repr(table).splitlines()
    assert lines[0].split() == ["lr", "seed", "attempt", "state", "time", "loss"]
    assert lines[3].split()[:4] == ["0.3", "2", "#3", "succeeded"]
    assert lines[-1] == "train#2: ValueError: too large: 2"
    assert "| `0.3` | `2` | `#3` |" in table._repr_markdown_()
    by_loss = table.sorted_by("-loss")
    assert [row.attempt for row in by_loss] == ["train#3", "train#1", "train#2"]
    assert repr(by_loss).splitlines()[1].split()[:3] == ["0.3", "2", "#3"]
    with pytest.raises(NotFound, match="no column `los`"):
        table.sorted_by("los")
    out, err = capsys.readouterr()
    assert "[train#1] trains 0.1" in out
    assert "sgpu: train#2 failed after" in err


def test_a_table_as_a_data_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    view = AttemptView(
        ref=AttemptRef(Address.run("train"), 1),
        backend="local",
        state=AttemptState.SUCCEEDED,
        started_at=moment,
        ended_at=moment + timedelta(seconds=3),
    )
    row = RunRow(view=view, axes={"lr": 0.1}, returned={"loss": 0.5}, metrics={"acc": 1.0})
    rows: list[CallRow[object]] = [
        CallRow(
            arguments={"lr": 0.1}, attempt="train#1", state=AttemptState.SUCCEEDED, seconds=3.0
        ),
        CallRow(arguments={"lr": 0.2}, error=ValueError("no room")),
    ]
    frame = CallTable(rows, RunTable(rows=(row,))).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame) == ["lr", "loss", "acc", "attempt", "state", "seconds", "error"]
    assert list(frame["lr"]) == [0.1, 0.2]
    assert (frame["state"][0], frame["error"][1]) == ("succeeded", "no room")
    assert [list(frame[name].isna()) for name in ("state", "error")] == [
        [False, True],
        [True, False],
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: train.map([{"lr": 1}, {"lrr": 1}]), "unexpected keyword argument 'lrr'"),
        (lambda: train.map([{"lr": 1}, 5]), "item 2 is `5`"),  # type: ignore[list-item]
        (lambda: train.map([range(10**6)]), r"item 1 is `range\(0, 1000000\)`"),  # type: ignore[list-item]
        (lambda: train.map([["x"] * 99]), r"'x', \.\.\.\]`"),  # type: ignore[list-item]
        (lambda: train.map(5), "`map` takes a list of dictionaries, not `5`"),  # type: ignore[arg-type]
        (lambda: train.map([{"lr": 1}], max_parallel=0), "`max_parallel` must be a whole number"),
        (lambda: train.with_overrides(run_async=True).map([{"lr": 1}]), "`map` waits"),
    ],
)
def test_a_mistake_in_one_call_is_known_before_the_first_starts(
    project: Path, call: Callable[[], object], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()
    assert not (project / ".sgpu").exists()


def test_calls_without_gpus_share_the_processors(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    table = train.map([{"lr": 0.1}, {"lr": 0.2}])
    assert [row.state for row in table] == [AttemptState.SUCCEEDED] * 2
    specs = [project / f".sgpu/default/runs/train/{call}/spec.json" for call in (1, 2)]
    assert [json.loads(spec.read_text())["parallel"]["limit"] for spec in specs] == [1, 1]


def test_a_fault_of_sgpu_is_no_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise KeyError("a fault")

    monkeypatch.setattr(call_map, "result_or_raise", broken)
    with pytest.raises(KeyError, match="a fault"):
        train.map([{"lr": 0.1}])


def test_no_calls_are_an_empty_table() -> None:
    assert repr(train.map([])) == "no calls"


def test_calls_that_cannot_be_launched_any_more_are_rows_too(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "sgpu.yml"
    file.write_text(
        "functions: {mlflow: {enabled: false}, env: {variables: {A: '${vars.a}'}}}\n"  # warned of
    )

    class BreakingStream(io.StringIO):
        def write(self, text: str) -> int:
            if "warning[" in text:  # said once, after the first launch
                file.write_text("functions: 5\n")
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", stream := BreakingStream())
    table = train.map([{"lr": 0.2}, {"lr": 0.3}, {"lr": 0.4}])
    assert table.results == [[{"loss": 0.4}], None, None]
    assert [row.attempt for row in table] == ["train#1", None, None]
    assert "not launched: InvalidInput: `train` cannot be called" in repr(table)
    assert "1 of 3 calls were launched" in stream.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_ends_with_an_interrupt_and_with_its_process(
    project: Path, number: signal.Signals
) -> None:
    program = project / "sweep.py"
    program.write_text(
        "import threading\n"
        "from sgpu_decl import distributed\n"
        "@distributed(gpus=1, gpu_type='CPU')\n"
        "def wait(n):\n"
        "    open(f'began{n}', 'w').close()\n"
        "    threading.Event().wait()\n"
        "wait.map([{'n': 1}, {'n': 2}], max_parallel=2)\n"
    )
    process = subprocess.Popen([sys.executable, program], stderr=subprocess.PIPE, text=True)
    until(lambda: (project / "began1").exists() and (project / "began2").exists())
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    outcomes = [project / f".sgpu/default/runs/wait/{call}/outcome.json" for call in (1, 2)]
    until(lambda: all(file.exists() for file in outcomes))
    assert all('"cancelled"' in file.read_text() for file in outcomes)
    if number is signal.SIGINT:
        assert "sgpu: 2 attempts are being cancelled" in said
        assert "sgpu: wait#2 cancelled" in said
        assert said.endswith("wait.map([{'n': 1}, {'n': 2}], max_parallel=2)\nKeyboardInterrupt\n")


def test_a_notebook_keeps_the_first_lines_of_a_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr("sgpu_decl.functions.call_follower.MOST_LINES", 1)
    train.map([{"lr": 0.1}, {"lr": 0.2}])
    out, err = capsys.readouterr()
    assert out.count("trains") == 1
    assert "sgpu: this sweep has printed 1 lines: more are in the logs of its calls only" in err
