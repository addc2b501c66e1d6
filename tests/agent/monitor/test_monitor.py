"""The monitor beside real ranks: what they use, how far they are, and that nobody waits for it."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.agent.attempt.monitor_files import MONITOR, SERIES
from sgpu_decl.agent.monitor.series_file import read_series
from sgpu_decl.agent.system.processes import alive, start_time
from tests.progress_reports import REPORT
from tests.support import until

Make = Callable[..., Any]


def seen(attempt: Any) -> dict[str, Any]:
    text = attempt.text(MONITOR)
    return json.loads(text) if text else {}


def test_a_report_shows_while_the_ranks_run_and_after_their_end(make_attempt: Make) -> None:
    attempt = make_attempt(
        f"{REPORT}\nreport(120, 300, loss=1.5)\nawait_file('go')\nreport(300, 300, loss=1.2)\n"
    ).launch()
    attempt.until(lambda: attempt.read().get("progress"))
    going = attempt.read()["progress"]
    assert (going["step"], going["total"], going["percent"], going["source"]) == (
        120, 300, 40.0, "trainer",
    )  # fmt: skip
    assert going["metrics"] == {"loss": 1.5}
    (attempt.folder / "output" / "go").touch()
    ended = attempt.wait()
    assert ended["state"] == "succeeded"
    assert (ended["progress"]["step"], ended["progress"]["metrics"]) == (300, {"loss": 1.2})
    attempt.check()


def test_what_ranks_use_is_measured(make_attempt: Make) -> None:
    work = f"""{REPORT}
memory = bytearray(100 << 20)
report(0)
while not os.path.exists(out + "/go"):
    sum(range(20_000))
"""
    attempt = make_attempt(work, world_size=2).launch()
    attempt.until(lambda: seen(attempt).get("ranks", {}).keys() == {"0", "1"})
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    series = read_series(attempt.folder / SERIES)
    assert series["node"] == 0
    assert series["ranks"].keys() == {0, 1}
    assert all(row["memory"] >= 100 for row in series["ranks"][0])
    assert max(row["cpu"] for row in series["ranks"][1]) > 50


def test_a_run_of_a_moment_is_not_measured(make_attempt: Make) -> None:
    attempt = make_attempt("pass").launch()
    assert attempt.wait()["state"] == "succeeded"
    assert not (attempt.folder / MONITOR).exists()
    assert "progress" not in attempt.read()


def test_bars_in_the_log_are_progress(make_attempt: Make) -> None:
    attempt = make_attempt(f"""{REPORT}
import sys
sys.stderr.write("\\r 41%|####      | 1200/3000 [12:01<18:02,  1.66it/s, loss=1.8]")
sys.stderr.flush()
await_file("go")
""").launch()
    attempt.until(lambda: attempt.read().get("progress"))
    found = attempt.read()["progress"]
    assert (found["step"], found["total"], found["source"]) == (1200, 3000, "bar")
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"


def test_a_function_says_how_far_it_is(make_attempt: Make) -> None:
    attempt = make_attempt(f"""{REPORT}
from sgpu_decl.runtime import report_progress
for step in range(5):
    report_progress(step + 1, 5, loss=1 / (step + 1))
report(0)
await_file("go")
""").launch()
    attempt.until(lambda: (attempt.read().get("progress") or {}).get("source") == "reported")
    (attempt.folder / "output" / "go").touch()
    found = attempt.wait()["progress"]
    assert (found["step"], found["total"], found["metrics"]) == (5, 5, {"loss": 0.2})


def test_the_end_of_the_monitor_harms_nobody(make_attempt: Make) -> None:
    attempt = make_attempt(f"""{REPORT}
report(1, 10)
open(out + "/reported" + os.environ["RANK"], "w").close()
await_file("go")
try:
    report(2, 10)
except OSError:
    print("refused at once")
""").launch()
    output = attempt.folder / "output"
    attempt.until(lambda: all((output / f"reported{rank}").exists() for rank in (0, 1)))
    attempt.until(lambda: seen(attempt).get("progress"))
    ranks = {attempt.rank_pid(0), attempt.rank_pid(1)}
    (monitor,) = (pid for pid in children(attempt.supervisor) if pid not in ranks)
    started = start_time(monitor)
    assert started is not None
    os.kill(monitor, signal.SIGKILL)
    until(lambda: not alive(monitor, started))
    until(lambda: monitor not in children(attempt.supervisor))
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    assert "refused at once" in attempt.log()
    attempt.check()


@pytest.mark.parametrize("victim", ["supervisor", "guardian"])
def test_it_ends_with_its_supervisor(make_attempt: Make, victim: str) -> None:
    attempt = make_attempt(f"{REPORT}\nreport(1, 10)\nawait_file('never')\n").launch()
    attempt.until(lambda: seen(attempt).get("progress"))
    children_before = children(attempt.supervisor)
    assert len(children_before) == 3
    os.kill(getattr(attempt, victim), signal.SIGKILL)
    if victim == "guardian":
        os.kill(attempt.supervisor, signal.SIGKILL)
    attempt.until(lambda: attempt.read()["state"] == "lost")
    until(lambda: not any(start_time(pid) for pid in children_before))


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.expensive
def test_steps_that_are_logged_to_mlflow_are_progress(make_attempt: Make) -> None:
    attempt = make_attempt(
        f"""{REPORT}
import mlflow
mlflow.set_tracking_uri("sqlite:///" + out + "/mlflow.db")
with mlflow.start_run():
    mlflow.log_metric("loss", 0.5, step=7)
    time.sleep(0.6)  # reports are half a second apart
    mlflow.log_metrics({{"loss": 0.25, "acc": 0.9}}, step=8)
    await_file("go")
""",
        world_size=1,
    ).launch()
    attempt.until(lambda: (attempt.read().get("progress") or {}).get("source") == "mlflow")
    (attempt.folder / "output" / "go").touch()
    found = attempt.wait()["progress"]
    assert (found["step"], found["total"], found["metrics"]) == (
        8,
        None,
        {"loss": 0.25, "acc": 0.9},
    )
