"""`sgpu stacks`, as a user types it."""

from tests.cli.conftest import Shell
from tests.support import FUNCTION_RUN, until


def test_stacks_of_a_running_run_and_of_one_that_has_ended(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FUNCTION_RUN.replace("name: a\n", "name: a\ngrace: 500ms\n"))
    sgpu.write("train.py", "import time\ndef main():\n    print('up')\n    time.sleep(600)\n")
    sgpu.done("apply", "-y", "--detach")
    until(lambda: "up" in sgpu.here("logs", "a").out)
    shown = sgpu.done("stacks", "a")
    assert shown.out.startswith("rank 0 (process ")
    assert f'File "{sgpu.folder}/train.py", line 4 in main' in shown.out
    data = sgpu.data("stacks", "a", "--rank", "0")
    assert [(one["rank"], one["reason"]) for one in data["stacks"]] == [(0, None)]
    assert data["groups"] == [{"ranks": [0], "differs": False, "at": None}]
    assert "there is no rank 7" in sgpu.here("stacks", "a", "--rank", "7").err
    sgpu.done("cancel", "a")
    assert "no rank of `a#1` runs now: its state is cancelled" in sgpu.exits(1, "stacks", "a").err


# Ranks wait for rank 2, which waits for data; each has a thread with a number of its own.
HANGING = """
import os, threading, time
def all_reduce():
    threading.Event().wait()
def load():
    threading.Event().wait()
def main():
    for _ in range(int(os.environ["RANK"])):
        threading.Thread(target=str).start()
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    print("up")
    if os.environ["RANK"] == "2":
        load()
    all_reduce()
"""


def test_the_rank_that_the_others_wait_for_is_named(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FUNCTION_RUN.replace("gpus: 1", "gpus: 4") + "grace: 500ms\n")
    sgpu.write("train.py", HANGING)
    sgpu.done("apply", "-y", "--detach")
    at = f'File "{sgpu.folder}/train.py", line 13 in main'
    groups = [
        {"ranks": [0, 1, 3], "differs": False, "at": None},
        {"ranks": [2], "differs": True, "at": at},
    ]
    until(lambda: sgpu.data("stacks", "a")["groups"] == groups)
    shown = sgpu.here("stacks", "a").out
    assert shown.startswith("ranks 0-1, 3 have the same stacks (these are of rank 0, process ")
    assert f"\n\nrank 2 differs from the others: {at} (process " in shown
    assert (shown.count("in all_reduce"), shown.count("in load")) == (1, 1)
    sgpu.done("cancel", "a")


def test_a_rank_that_has_ended_while_others_run(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FUNCTION_RUN.replace("gpus: 1", "gpus: 2"))
    sgpu.write(
        "train.py",
        "import os, time\ndef main():\n    if os.environ['RANK'] == '0': time.sleep(600)\n",
    )
    sgpu.done("apply", "-y", "--detach")

    def states() -> list[str]:
        (run,) = sgpu.data("status")["runs"]
        return [rank["state"] for rank in run["ranks"]]

    until(lambda: states() == ["running", "succeeded"])
    ended = sgpu.here("stacks", "a", "--rank", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "rank 1 of `a#1` does not run now: its state is succeeded" in ended.err
    sgpu.done("cancel", "a")


def test_an_attempt_that_has_no_ranks_yet(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FUNCTION_RUN + "max_parallel: 1\non_active: parallel\nuntil: always\n")
    sgpu.write("train.py", "import time\ndef main():\n    time.sleep(600)\n")
    for _ in range(2):
        sgpu.done("apply", "-y", "--detach")
    refused = sgpu.exits(1, "stacks", "a#2", "--rank", "0")
    assert "no rank of `a#2` runs now: its state is queued" in refused.err
    sgpu.done("cancel", "a#1")
    sgpu.done("cancel", "a#2")
