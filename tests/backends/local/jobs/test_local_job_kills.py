"""A `sgpu start` that is killed at a step and repeated is one launch of the job, and leaves nothing
else behind."""

from pathlib import Path

import pytest

from sgpu_decl.agent.system.locks import held
from sgpu_decl.backends.local.jobs import walker_start
from sgpu_decl.errors import OutcomeUnknown
from sgpu_decl.model.attempt import AttemptState
from tests.backends.local.jobs.conftest import Shop, ended
from tests.sampling import sampled
from tests.support import until

_JOBS = "sgpu_decl.backends.local.jobs.local_jobs"
_LAUNCHER = "sgpu_decl.backends.local.local_launcher,LocalLauncher"
STEPS = [
    "sgpu_decl.runs.job_start,,write_atomic,before,1",
    "sgpu_decl.runs.job_start,,write_atomic,after,1",
    f"{_LAUNCHER},_stage,before,1",
    f"{_LAUNCHER},stage,after,1",
    f"{_JOBS},,start_walker,before,1",
    f"{_JOBS},,start_walker,after,1",
    f"{_JOBS},LocalJobs,launch,after,1",
]
WORDS = ("start", "nightly", "--only", "tidy")


def launches(shop: Shop) -> list[Path]:
    found = (shop.folder / ".sgpu/default/jobs").glob("*/launches/*/launch.json")
    return sorted(path.parent for path in found)


def attempts(shop: Shop) -> list[str]:
    return sorted(p.name for p in (shop.folder / ".sgpu/default/jobs").glob("*/runs/*/*"))


def is_started_once(shop: Shop, step: str) -> None:
    """Killed at a step and started again, it is one launch more."""
    before = len(launches(shop))
    shop.kill_at(step, *WORDS)
    started = shop.jobs.start("nightly", tasks=["tidy"])
    assert len(launches(shop)) == before + 1, step
    assert started.again is (step != STEPS[0])
    assert ended(shop, started).launch.state is AttemptState.SUCCEEDED


@pytest.mark.parametrize("step", sampled(STEPS, quick=2))
def test_killed_while_it_starts_a_job_it_is_started_once(shop: Shop, step: str) -> None:
    shop.done("apply", "-y")
    is_started_once(shop, step)
    assert attempts(shop) == ["1"]


@pytest.mark.expensive
def test_thirty_kills_start_thirty_launches(shop: Shop) -> None:
    shop.done("apply", "-y")
    for number in range(30):
        is_started_once(shop, STEPS[number % len(STEPS)])
    assert len(launches(shop)) == len(attempts(shop)) == 30
    until(lambda: not any(held(str(one / "walker.lock")) for one in launches(shop)))
    shop.done("gc")
    assert len(launches(shop)) == len(attempts(shop)) == 10


def test_what_a_killed_start_had_staged_is_staged_anew_by_another(shop: Shop) -> None:
    shop.done("apply", "-y")
    shop.kill_at(STEPS[4], *WORDS)
    assert attempts(shop) == ["1"]
    started = shop.jobs.start("nightly", parameters={"n": "2"}, tasks=["tidy", "prepare"])
    assert not started.again
    assert attempts(shop) == ["1", "1"]
    ended(shop, started)
    shop.kill_at(STEPS[4], *WORDS)
    assert attempts(shop) == ["1", "1", "2"]
    shop.done("gc")
    assert attempts(shop) == ["1", "1"]


@pytest.mark.parametrize(
    ("function", "when", "launched"),
    [("create_held", "before", 0), ("write_atomic", "before", 0), ("write_atomic", "after", 1)],
)
def test_a_walker_that_is_killed_as_it_begins_makes_no_second_launch(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, function: str, when: str, launched: int
) -> None:
    kill = f"real = w.{function}\ndef dies(*a, **k):\n"
    died = " os.kill(os.getpid(), 9)\n"
    call = " real(*a, **k)\n"
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import os\n"
        "import sgpu_decl.backends.local.jobs.launch_walker as w\n"
        f"{kill}{died if when == 'before' else call + died}w.{function} = dies\n"
        "w.main(sys.argv[1:])"
    )
    shop.done("apply", "-y")
    with monkeypatch.context() as patched:
        patched.setattr(walker_start, "_PROGRAM", program)
        with pytest.raises(OutcomeUnknown):
            shop.jobs.start("nightly", tasks=["tidy"])
    assert len(launches(shop)) == launched
    started = shop.jobs.start("nightly", tasks=["tidy"])
    assert started.again
    assert len(launches(shop)) == 1
    if launched:
        assert started.launch.state is AttemptState.LOST
        started = shop.jobs.start("nightly", tasks=["tidy"])
    assert ended(shop, started).launch.state is AttemptState.SUCCEEDED


def test_a_launch_is_stopped_with_its_tasks(shop: Shop) -> None:
    (shop.folder / "steps/prepare.py").write_text("import time\ntime.sleep(300)\n")
    shop.done("apply", "-y")
    assert "has no active launch" in shop.done("cancel", "job.nightly").err
    started = shop.jobs.start("nightly")
    until(lambda: shop.jobs.look_again(started).tasks[0].state is AttemptState.RUNNING)
    assert "job.nightly asked to stop" in shop.done("cancel", "job.nightly").err
    now = ended(shop, started)
    assert {now.launch.state, *(task.state for task in now.tasks)} == {AttemptState.CANCELLED}
    assert [task.skipped for task in now.tasks] == [False, True, True]
    assert shop.data("cancel", "job.nightly") == {"runs": [], "jobs": []}


def test_a_launch_that_waits_for_another_is_stopped_too(shop: Shop) -> None:
    (shop.folder / "tidy.py").write_text("import time\ntime.sleep(300)\n")
    shop.replace("parameters:", "queue: true\n    parameters:")
    shop.done("apply", "-y")
    started = [shop.jobs.start("nightly", tasks=["tidy"]) for _ in range(2)]
    shop.done("cancel", "nightly")
    for one in started:
        assert ended(shop, one).launch.state is AttemptState.CANCELLED


def test_destroy_stops_what_runs_and_leaves_nothing(shop: Shop) -> None:
    (shop.folder / "steps/prepare.py").write_text("import time\ntime.sleep(300)\n")
    shop.done("apply", "-y")
    started = shop.jobs.start("nightly")
    until(lambda: shop.jobs.look_again(started).tasks[0].state is AttemptState.RUNNING)
    shop.done("destroy", "-y")
    assert list((shop.folder / ".sgpu/default/jobs").iterdir()) == []
    shop.done("destroy", "-y")


def test_what_a_destroy_could_not_wait_for_is_deleted_by_gc(shop: Shop) -> None:
    go = shop.folder / "go"
    (shop.folder / "steps/prepare.py").write_text(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"print('up', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    )
    shop.done("apply", "-y")
    shop.jobs.start("nightly")
    jobs = shop.folder / ".sgpu/default/jobs"
    (log,) = until(lambda: list(jobs.glob("*/runs/*/1/ranks/0/0/stdout.log")))
    until(log.read_text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sgpu_decl.backends.local.jobs.local_jobs._PATIENCE", 0.1)
        shop.done("destroy", "-y")
    assert launches(shop)
    go.write_text("")
    until(lambda: not held(str(launches(shop)[0] / "walker.lock")))
    shop.done("gc")
    assert list((shop.folder / ".sgpu/default/jobs").iterdir()) == []
