"""`sgpu start` of a job of this machine: its tasks run in their order, in processes of their own,
and are followed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_files import read_json
from sgpu_decl.agent.system.locks import held
from sgpu_decl.errors import Usage
from sgpu_decl.model.attempt import AttemptState
from tests.backends.local.jobs.conftest import Shop, ended
from tests.docs.pages import script
from tests.support import some, until

PAGE = script("json_answers")


def test_it_is_started_with_a_parameter_and_followed(shop: Shop) -> None:
    shop.done("apply", "-y")
    told = shop.started("--param", "day=monday")
    assert (told["address"], told["launch"]["state"]) == ("job.nightly", "succeeded")
    assert told["launch"].keys() == PAGE.OBJECTS["A launch of a job"].keys.keys()
    tasks = {task["name"]: task for task in told["tasks"]}
    assert list(tasks) == ["prepare", "train", "tidy"]
    assert tasks["train"].keys() == PAGE.OBJECTS["A task of a launch"].keys.keys()
    assert {task["state"] for task in tasks.values()} == {"succeeded"}
    assert tasks["prepare"]["output"] == "for monday"
    assert "[rank 1] rank 1 works" in tasks["train"]["output"]
    assert [one["value"] for one in tasks["train"]["results"]] == [0, 1]
    assert tasks["prepare"]["ended_at"] <= tasks["train"]["started_at"]

    again = shop.ran("start", "nightly", "--wait")
    assert "[prepare] for today\n" in again.out
    assert "[train] rank 1 returned 1\n" in again.out
    assert "tidy: succeeded" in again.err
    (known,) = shop.data("status")["jobs"]
    assert known["last"]["id"].endswith(".2")
    assert "succeeded" in shop.done("show", "job.nightly").out
    logs = shop.done("logs", "nightly")
    assert logs.out == again.out
    assert shop.data("logs", "job.nightly")["launch"]["id"] == known["last"]["id"]
    assert shop.here("logs", "job.nightly", "-f").code == 64


@pytest.mark.parametrize("command", ["start", "logs", "show", "status", "cancel", "open"])
def test_a_misspelled_job_is_named_with_the_most_similar_one(shop: Shop, command: str) -> None:
    shop.done("apply", "-y")
    answer = shop.here(command, "job.nigtly")
    assert answer.code == 1
    assert "no job matches `job.nigtly`" in answer.err
    assert "job.nightly" in answer.err


def test_a_job_of_one_run_and_some_tasks_alone(shop: Shop) -> None:
    shop.replace("jobs:\n", "jobs:\n  single: {run: train}\n")
    shop.done("apply", "-y")
    assert "[single] rank 0 returned 0" in shop.ran("start", "single", "--wait").out
    told = shop.started("--only", "tidy")
    assert [(one["name"], one["output"]) for one in told["tasks"]] == [("tidy", "tidied up")]
    with pytest.raises(Usage, match="no parameter `dy`"):
        shop.jobs.start("nightly", parameters={"dy": "x"})


def test_a_cause_is_told_and_the_tasks_after_it_are_passed_over(shop: Shop) -> None:
    shop.replace("if: all_done}", "if: at_least_one_failed}\n      late: {python: tidy.py, "
                 "after: [train]}\n      never: {python: tidy.py, after: [prepare], "
                 "if: all_failed}")  # fmt: skip
    text = "import os\ndef main():\n    assert os.environ['RANK'] == '0', 'no data'\n"
    (shop.folder / "train.py").write_text(text)
    shop.done("apply", "-y")
    done = shop("start", "nightly", "--wait")
    assert done.code == 5
    assert "rank 1" in done.out
    assert "AssertionError: no data" in done.out
    assert "[tidy] tidied up" in done.out
    assert "late: skipped" in done.err
    assert "never: skipped" in done.err
    staged = list((shop.folder / ".sgpu/default/jobs").glob("*/runs/*/1"))
    assert len(staged) == 3, "what was passed over keeps no copy of the code"


def test_a_python_file_has_its_retries_and_its_timeout(shop: Shop) -> None:
    (shop.folder / "tidy.py").write_text(
        "import os, time\nprint('again', flush=True)\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': raise SystemExit(3)\n"
        "time.sleep(300)\n"
    )
    shop.replace("if: all_done}", "if: all_done, retries: 1, timeout: 2s}")
    shop.done("apply", "-y")
    (tidy,) = shop.started("--only", "tidy")["tasks"]
    assert tidy["state"] == "failed"
    assert tidy["first_cause"]["class"] == "timeout"
    assert tidy["output"] == "again\nagain"


def test_launches_share_no_folder_and_a_second_one_waits_or_is_refused(shop: Shop) -> None:
    go = shop.folder / "go"
    (shop.folder / "tidy.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    )
    shop.replace("parameters:", "queue: true\n    parameters:")
    shop.done("apply", "-y")
    first = shop.jobs.start("nightly", tasks=["tidy"])
    second = shop.jobs.start("nightly", tasks=["tidy"])
    assert second.behind == first.launch.id
    until(lambda: shop.jobs.look_again(first).tasks[0].state is AttemptState.RUNNING)
    assert shop.jobs.look_again(second).launch.state is AttemptState.QUEUED
    go.write_text("")
    assert ended(shop, first).launch.state is AttemptState.SUCCEEDED
    assert ended(shop, second).launch.state is AttemptState.SUCCEEDED

    go.unlink()
    shop.replace("queue: true", "queue: false")
    shop.done("apply", "-y")
    first = shop.jobs.start("nightly", tasks=["tidy"])
    until(lambda: shop.jobs.look_again(first).launch.state is AttemptState.RUNNING)
    refused = ended(shop, shop.jobs.start("nightly", tasks=["tidy"]))
    assert refused.launch.state is AttemptState.FAILED
    assert refused.tasks[0].skipped
    assert "`on_overlap: queue`" in str(refused.tasks[0].output)
    go.write_text("")
    ended(shop, first)


def test_a_launch_that_takes_too_long_is_stopped(shop: Shop) -> None:
    (shop.folder / "steps/prepare.py").write_text("import time\ntime.sleep(300)\n")
    shop.replace("parameters:", "timeout: 1s\n    parameters:")
    shop.done("apply", "-y")
    told = shop.started()
    assert told["launch"]["state"] == "failed"
    assert {task["name"]: task["state"] for task in told["tasks"]} == {
        "prepare": "cancelled", "train": "cancelled", "tidy": "cancelled",
    }  # fmt: skip
    assert "longer than its `timeout`" in told["tasks"][0]["output"]


def test_secrets_reach_tasks_and_no_file(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.environ["THE_KEY"] = "hunter-2-hunter"
    shop.replace("grace: 500ms", "grace: 500ms, env: {secrets: {KEY: 'env:THE_KEY'}}")
    (shop.folder / "train.py").write_text(
        "import os\ndef main():\n    print(len(os.environ['KEY']))\n    return 1\n"
    )
    shop.done("apply", "-y")
    told = shop.started()
    assert told["launch"]["state"] == "succeeded"
    for path in (shop.folder / ".sgpu").rglob("*"):
        assert not path.is_file() or b"hunter" not in path.read_bytes(), path


def walker(shop: Shop, number: int) -> tuple[Path, dict[str, int]]:
    (folder,) = (shop.folder / ".sgpu/default/jobs").glob(f"*/launches/{number}")
    return folder, read_json(str(folder), "launch.json") or {}


def test_the_launch_goes_on_without_the_command(shop: Shop) -> None:
    """Ctrl-C ends only the waiting, and so does a kill."""
    go = shop.folder / "go"
    (shop.folder / "steps/prepare.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    )
    shop.done("apply", "-y")
    with shop.start("start", "nightly", "--wait") as waiting:
        assert waiting.stderr is not None
        for line in waiting.stderr:
            if "prepare: running" in line:
                break
        waiting.kill()
    go.write_text("")
    folder, _ = walker(shop, 1)
    until(lambda: held(str(folder / "walker.lock")) is False)
    (known,) = shop.data("status")["jobs"]
    assert known["last"]["state"] == "succeeded"


def test_the_death_of_the_walker_is_told_and_a_second_start_works(shop: Shop) -> None:
    go = shop.folder / "go"
    (shop.folder / "steps/prepare.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    )
    shop.done("apply", "-y")
    with shop.start("start", "nightly", "--wait") as waiting:
        last = some(until(lambda: shop.jobs.last_launch("nightly")))
        until(lambda: shop.jobs.look_again(last).tasks[0].url)
        folder, launch = walker(shop, 1)
        os.kill(launch["pid"], signal.SIGKILL)
        out, err = waiting.communicate()
    assert waiting.returncode == 5
    assert "has the state `lost`" in err
    assert "[train] it was not started: the process that starts the tasks" in out
    assert held(str(folder / "walker.lock")) is False
    prepare, train, _ = shop.jobs.look_again(last).tasks
    assert prepare.state.active, "what it had started goes on"
    assert train.state is AttemptState.LOST
    assert shop.data("cancel", "nightly")["jobs"] == ["job.nightly"]
    until(lambda: shop.jobs.look_again(last).tasks[0].state is AttemptState.CANCELLED)
    go.write_text("")
    assert shop.started()["launch"]["state"] == "succeeded"


def test_a_walker_loads_next_to_nothing() -> None:
    program = "import sys, sgpu_decl.backends.local.jobs.launch_walker; print(*sys.modules)"
    root = str(Path(__file__).parents[4])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {root!r}); {program}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {"pydantic", "yaml", "asyncio", "subprocess"} - set(done.stdout.split()) >= {"pydantic"}
