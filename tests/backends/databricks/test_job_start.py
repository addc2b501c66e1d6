"""`sgpu start`: a job is launched now, once, with parameters, and followed."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from sgpu_decl.errors import NotFound, Usage
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.testing.contracts.killed_commands import dying
from sgpu_decl.testing.workspace import Effect, WorkspaceServer
from tests.backends.databricks.test_job_tasks import NOTEBOOK, Shop
from tests.docs.pages import script
from tests.sampling import SAMPLE, sampled
from tests.support import some

PAGE = script("json_answers")

PROJECT = """\
project: {name: shop}
jobs:
  nightly:
    backend: databricks
    parameters: {day: today, n: 1}
    queue: true
    tasks:
      prepare: {python: prepare.py, args: ["${job.parameters.day}"]}
      check: {task: {condition_task: {op: EQUAL_TO, left: "${job.parameters.n}", right: "1"}}}
      report: {notebook: report.ipynb, after: [prepare, check.true]}
"""
WITH_RUN = """\
project: {name: shop}
runs:
  train: {backend: databricks, gpus: 2, type: A10, entrypoint: train.py:main, env: {base: gpu-6}}
jobs:
  nightly: {queue: true, tasks: {train: {run: train}}}
"""
TRAIN = """\
import os

def main():
    print("rank", os.environ["RANK"], "works")
    if os.environ["RANK"] == "1":
        raise RuntimeError("no data")
    return int(os.environ["RANK"])
"""
REPORT = "dbutils.notebook.exit('on ' + dbutils.widgets.get('day'))"


@pytest.fixture
def shop(project: Any, server: WorkspaceServer, token: str) -> Shop:
    (project / "run.yaml").unlink()
    cells = [{"cell_type": "code", "source": [REPORT]}]
    for name, text in {
        "sgpu.yml": PROJECT,
        "prepare.py": "import sys\nprint('for', sys.argv[1])\n",
        "report.ipynb": json.dumps({**NOTEBOOK, "cells": cells}),
    }.items():
        (project / name).write_text(text)
    made = Shop(project, server, token, "sgpu.yml")
    made.apply()
    return made


def launches(shop: Shop) -> list[Any]:
    job_id, found, token = shop.job()[0], [], ""
    while True:
        page = shop.api("GET", "runs/list", job_id=job_id, page_token=token)
        found += page.get("runs", ())
        token = page.get("next_page_token", "")
        if not token:
            return found


def sgpu(shop: Shop, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sgpu_decl", *words]
    return subprocess.run(command, cwd=shop.project, capture_output=True, text=True, check=False)


def test_a_job_is_started_with_parameters_and_followed(shop: Shop) -> None:
    done = sgpu(shop, "start", "job.nightly", "--param", "day=monday", "--wait", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["data"]
    assert (told["address"], told["launch"]["state"]) == ("job.nightly", "succeeded")
    assert told["launch"].keys() == PAGE.OBJECTS["A launch of a job"].keys.keys()
    tasks = {task["name"]: task for task in told["tasks"]}
    assert tasks["report"].keys() == PAGE.OBJECTS["A task of a launch"].keys.keys()
    assert {name: task["state"] for name, task in tasks.items()} == dict.fromkeys(
        ("prepare", "check", "report"), "succeeded"
    )
    assert "for monday" in tasks["prepare"]["output"]
    assert "on monday" in tasks["report"]["output"]
    assert "report: succeeded" in done.stderr
    assert len(launches(shop)) == 1
    opened = sgpu(shop, "open", "nightly", "--print")
    assert opened.stdout == told["launch"]["link"] + "\n", opened.stderr
    job = sgpu(shop, "open", "job.nightly", "--print", "--page", "job").stdout
    assert job != opened.stdout
    assert job.startswith("http")


def test_some_tasks_alone_and_what_is_skipped(shop: Shop) -> None:
    done = sgpu(shop, "start", "nightly", "--only", "prepare", "--wait")
    assert (done.returncode, done.stdout) == (0, "[prepare] for today\n"), done.stderr
    done = sgpu(shop, "start", "nightly", "--param", "n=2", "--wait")
    assert done.returncode == 0
    assert "report: skipped" in done.stderr


def test_a_failed_task_is_told_and_decides_the_exit_code(shop: Shop) -> None:
    (shop.project / "prepare.py").write_text("raise SystemExit('no data')\n")
    shop.apply()
    done = sgpu(shop, "start", "nightly", "--wait")
    assert done.returncode == 5
    assert "prepare: failed" in done.stderr
    assert "report: skipped" in done.stderr


@pytest.mark.expensive
def test_a_run_in_it_tells_its_first_cause_and_what_ranks_returned(shop: Shop) -> None:
    """Each launch tells of its own ranks, though all share a launch folder."""
    (shop.project / "sgpu.yml").write_text(WITH_RUN)
    (shop.project / "train.py").write_text(TRAIN)
    shop.apply()
    done = sgpu(shop, "start", "nightly", "--wait", "-o", "json")
    assert done.returncode == 5
    (train,) = json.loads(done.stdout)["data"]["tasks"]
    assert train["first_cause"]["rank"] == 1
    assert "RuntimeError: no data" in train["first_cause"]["summary"]
    shop.ended(int(json.loads(done.stdout)["data"]["launch"]["id"]))

    (shop.project / "train.py").write_text(TRAIN.replace("raise", "if False: raise"))
    shop.apply()
    for _ in range(2):
        done = sgpu(shop, "start", "nightly", "--wait")
        assert done.returncode == 0, done.stderr
        assert "[train] rank 1 returned 1\n" in done.stdout
        assert "[train] [rank 0] rank 0 works" in done.stdout
        assert done.stdout.count("returned") == 2


def test_what_the_job_does_not_have_is_refused_before_anything_is_asked(shop: Shop) -> None:
    jobs = shop.open().jobs
    with pytest.raises(Usage, match="no parameter `dy`") as refused:
        jobs.start("nightly", parameters={"dy": "x"})
    assert refused.value.hint == "did you mean `day`?"
    with pytest.raises(Usage, match="no task `repor`"):
        jobs.start("nightly", tasks=["repor"])
    with pytest.raises(NotFound):
        jobs.start("weekly")
    assert launches(shop) == []


def test_an_answer_that_was_lost_is_one_launch(shop: Shop) -> None:
    shop.fault("POST /api/2.2/jobs/run-now", Effect.LOSE_ANSWER, times=1)
    started = shop.open().jobs.start("nightly")
    assert [str(run["run_id"]) for run in launches(shop)] == [started.launch.id]


def test_a_launch_behind_an_active_one_is_told(shop: Shop) -> None:
    go = shop.project / "go"
    shop.write(
        "prepare.py",
        "import sys\n",
        f"import os, sys, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.02)\n",
    )
    shop.apply()
    first = shop.open().jobs.start("nightly", tasks=["prepare"])
    done = sgpu(shop, "start", "nightly", "--only", "check")
    assert done.returncode == 0, done.stderr
    assert f"the launch {first.launch.id} is still active: this one waits" in done.stderr
    assert first.behind is None
    go.write_text("")
    for run in launches(shop):
        shop.ended(run["run_id"])


def test_the_active_launches_are_stopped_and_the_last_one_is_read_again(shop: Shop) -> None:
    shop.write("prepare.py", "import sys\n", "import sys, time\ntime.sleep(300)\n")
    shop.apply()
    jobs = shop.open().jobs
    assert jobs.last_launch("nightly") is None
    assert jobs.cancel("nightly")[1] is False
    started = [jobs.start("nightly", tasks=["prepare"]).launch.id for _ in range(2)]
    assert "job.nightly asked to stop" in sgpu(shop, "cancel", "job.nightly").stderr
    for run_id in started:
        shop.ended(int(run_id))
    last = some(jobs.last_launch("nightly"))
    assert (last.launch.id, last.launch.state) == (started[1], AttemptState.CANCELLED)
    assert f"launch {started[1]} cancelled" in sgpu(shop, "logs", "nightly").stderr


_JOBS = "sgpu_decl.backends.databricks.jobs.workspace_jobs"
STEPS = [
    "sgpu_decl.runs.job_start,,write_atomic,before,1",
    "sgpu_decl.runs.job_start,,write_atomic,after,1",
    f"{_JOBS},,start_once,before,1",
    f"{_JOBS},,start_once,after,1",
    f"{_JOBS},,read_launch,after,1",
]


def is_started_once(shop: Shop, step: str) -> None:
    """Killed at a step and started again, it is one launch more."""
    before = len(launches(shop))
    words = ("start", "nightly", "--only", "check")
    died = subprocess.run(dying(step, *words), cwd=shop.project, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    started = shop.open().jobs.start("nightly", tasks=["check"])
    assert len(launches(shop)) == before + 1, step
    assert started.again is (step != STEPS[0])
    shop.ended(int(started.launch.id))


@pytest.mark.parametrize("step", sampled(STEPS, quick=2))
def test_killed_while_it_starts_a_job_it_is_started_once(shop: Shop, step: str) -> None:
    is_started_once(shop, step)


@pytest.mark.expensive
def test_many_kills_start_as_many_launches(shop: Shop) -> None:
    kills = 30 if SAMPLE == "all" else 10
    for number in range(kills):
        is_started_once(shop, STEPS[number % len(STEPS)])
    assert len(launches(shop)) == kills
    assert not shop.open().jobs.start("nightly", tasks=["check"]).again


def test_a_started_launch_is_seen_again(shop: Shop) -> None:
    jobs = shop.open().jobs
    started = jobs.start("job.nightly", tasks=["check"])
    shop.ended(int(started.launch.id))
    assert jobs.look_again(started).launch.state is AttemptState.SUCCEEDED
