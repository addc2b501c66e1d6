"""`sgpu stacks`, as a user types it."""

from tests.cli.conftest import Shell
from tests.support import FUNCTION_RUN, until


def test_stacks_of_a_running_run_and_of_one_that_has_ended(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FUNCTION_RUN.replace("name: a\n", "name: a\ngrace: 500ms\n"))
    sgpu.write("train.py", "import time\ndef main():\n    print('up')\n    time.sleep(600)\n")
    assert sgpu.here("apply", "-y", "--detach").code == 0
    until(lambda: "up" in sgpu.here("logs", "a").out)
    shown = sgpu.here("stacks", "a")
    assert shown.code == 0
    assert shown.out.startswith("rank 0, process ")
    assert f'File "{sgpu.folder}/train.py", line 4 in main' in shown.out
    stacks = sgpu.here("stacks", "a", "--rank", "0", "-o", "json").json["data"]["stacks"]
    assert [(one["rank"], one["reason"]) for one in stacks] == [(0, None)]
    assert "there is no rank 7" in sgpu.here("stacks", "a", "--rank", "7").err
    assert sgpu.here("cancel", "a").code == 0
    ended = sgpu.here("stacks", "a")
    assert ended.code == 1
    assert "no rank of `a#1` runs now: it is cancelled" in ended.err
