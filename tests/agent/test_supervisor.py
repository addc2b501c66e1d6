"""Attempts from launch to outcome, with real processes: what ends how, and what is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import sgpu_decl.agent
from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.launching.agent_launch import launch
from sgpu_decl.agent.system.locks import open_lock, try_lock
from sgpu_decl.rendering.spec import Entry, Gpus, Parallel, RetrySpec, TrackerSpec
from sgpu_decl.testing.file_search import files_with
from tests.support import shell_program

Make = Callable[..., Any]
AGENT = str(Path(sgpu_decl.agent.__file__).with_name("__main__.py"))
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.environ["SGPU_OUTPUT_DIR"] + "/up" + os.environ["RANK"], "w").close()
while True:
    time.sleep(60)
"""
BLOCK = """
import os, signal
open(os.environ["SGPU_OUTPUT_DIR"] + "/up" + os.environ["RANK"], "w").close()
while True: signal.pause()
"""


def function(name: str = "main", **args: Any) -> Entry:
    return Entry(kind="file_function", path="main.py", function=name, args=args)


def test_a_function_returns_a_value_per_rank(make_attempt: Make) -> None:
    source = "import os\ndef main(n): return {'rank': int(os.environ['RANK']), 'n': n}"
    attempt = make_attempt(source, entry=function(n=3)).launch()
    assert attempt.values() == [{"rank": 0, "n": 3}, {"rank": 1, "n": 3}]
    status = attempt.read()
    assert (status["state"], status["exit_code"], status["class"]) == ("succeeded", 0, None)
    assert [rank["state"] for rank in status["ranks"]] == ["succeeded", "succeeded"]
    assert status["started_at"] <= status["ended_at"]
    attempt.until_gone()


def test_an_exception_is_the_first_cause_with_the_users_frames_only(make_attempt: Make) -> None:
    source = (
        "import os, signal\n"
        "def main():\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('no such layer')\n"
        "    signal.pause()\n"
    )
    attempt = make_attempt(source, entry=function()).launch()
    status = attempt.wait()
    cause = status["first_cause"]
    assert (status["state"], status["exit_code"], status["class"]) == ("failed", 1, "exception")
    assert (cause["rank"], cause["summary"]) == (1, "ValueError: no such layer")
    assert "main.py" in cause["traceback"]
    assert "_air.py" not in cause["traceback"] + attempt.log(1, "stderr")
    assert [rank["state"] for rank in status["ranks"]] == ["stopped", "failed"]
    attempt.until_gone()


def test_a_rank_that_ends_itself_by_term_was_killed(make_attempt: Make) -> None:
    """Other deaths are faults of `test_faults`."""
    source = (
        "import os, signal\n"
        "if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()\n"
    )
    attempt = make_attempt(source).launch()
    status = attempt.wait()
    assert (status["state"], status["class"], status["exit_code"]) == ("failed", "killed", 143)
    assert (status["first_cause"]["rank"], status["first_cause"]["simultaneous"]) == (1, [])
    attempt.until_gone()


@pytest.mark.parametrize(
    "entry",
    [
        Entry(kind="script", path="gone.py"),
        Entry(kind="file_function", path="gone.py", function="main"),
        Entry(kind="file_function", path="main.py", function="gone"),
        Entry(kind="module_function", module="gone.away", function="main"),
        Entry(kind="command", command=("/gone/away",)),
        Entry(kind="command", command=("./main.py",)),
    ],
    ids=lambda entry: f"{entry.kind}-{entry.path or entry.module or entry.command}",
)
def test_what_cannot_be_started_is_the_users_error(make_attempt: Make, entry: Entry) -> None:
    attempt = make_attempt("", entry=entry).launch()
    status = attempt.wait()
    assert (status["state"], status["class"]) == ("failed", "launch_failed_user"), status
    assert status["first_cause"]["rank"] in (0, 1)
    attempt.until_gone()


def test_commands_and_shell_texts_run_without_python(make_attempt: Make) -> None:
    plain = make_attempt(entry=Entry(kind="command", command=("echo", "$RANK"), args=("a b",)))
    shell = make_attempt(entry=Entry(kind="shell", shell="echo $RANK of $WORLD_SIZE; false | true"))
    assert plain.launch().wait()["state"] == "succeeded"
    assert plain.log() == "$RANK a b\n"
    assert shell.launch().wait()["exit_code"] == 1
    assert shell.log() == "0 of 2\n"


def test_every_promised_variable_is_there(make_attempt: Make) -> None:
    source = "import json, os\ndef main(): return dict(os.environ)"
    attempt = make_attempt(source, entry=function(), env={"LR": "0.1", "OMP_NUM_THREADS": "3"})
    attempt.launch().wait()
    seen = json.loads(attempt.text("ranks/1/output.json"))
    promised = (
        "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE"
        " ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME NUM_NODES REPLICA_RANK MASTER_ADDR MASTER_PORT"
        " TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS"
        " TORCHELASTIC_ERROR_FILE SGPU_ADDRESS SGPU_RUN_NAME SGPU_ATTEMPT SGPU_RUN_DIR"
        " SGPU_OUTPUT_DIR SGPU_PROJECT_DIR PYTHONUNBUFFERED"
    )
    assert not [name for name in promised.split() if name not in seen]
    assert (seen["RANK"], seen["LR"], seen["OMP_NUM_THREADS"]) == ("1", "0.1", "3")
    assert seen["GLOO_SOCKET_IFNAME"] == "lo"
    assert "SGPU_READY_FD" not in seen


def test_cancel_ends_a_running_attempt(make_attempt: Make) -> None:
    attempt = make_attempt(BLOCK).launch()
    attempt.until(lambda: attempt.up(0))
    request_cancel(attempt.folder)
    status = attempt.wait()
    assert (status["state"], status["class"], status["exit_code"]) == ("cancelled", None, 130)
    attempt.until_gone()


def test_a_cancel_before_the_launch_is_not_lost(make_attempt: Make) -> None:
    attempt = make_attempt(BLOCK)
    assert attempt.read()["state"] == "staging"
    request_cancel(attempt.folder)
    assert attempt.launch().wait()["state"] == "cancelled"
    assert not (attempt.folder / "ranks").exists()


def test_ranks_that_ignore_term_are_killed_after_the_grace(make_attempt: Make) -> None:
    attempt = make_attempt(STUBBORN).launch()
    attempt.until_up()
    request_cancel(attempt.folder)
    status = attempt.wait()
    assert status["state"] == "cancelled"
    assert [rank["signal"] for rank in status["ranks"]] == ["SIGKILL", "SIGKILL"]
    attempt.until_gone()


def test_a_timeout_stops_the_run(make_attempt: Make) -> None:
    attempt = make_attempt(BLOCK, timeout=0.3).launch()
    status = attempt.wait()
    assert (status["state"], status["class"], status["exit_code"]) == ("failed", "timeout", 124)
    attempt.until_gone()


def test_a_hang_leaves_the_stacks_of_all_ranks(make_attempt: Make) -> None:
    attempt = make_attempt(BLOCK, progress_timeout=1.5).launch()
    status = attempt.wait()
    assert (status["state"], status["class"], status["exit_code"]) == ("failed", "hung", 124)
    for rank in (0, 1):
        assert "main.py" in attempt.text(f"ranks/{rank}/0/fault.log")
    assert status["first_cause"]["traceback"].startswith("ranks 0-1 have the same stacks:\n")
    attempt.until_gone()


def test_a_hang_of_a_program_that_the_script_executed_is_one_too(make_attempt: Make) -> None:
    source = "import os\nos.execvp('sleep', ['sleep', '600'])"
    status = make_attempt(source, progress_timeout=0.4).launch().wait()
    assert (status["class"], status["first_cause"]["rank"]) == ("hung", None)


def test_a_hang_of_a_command_says_where_its_processes_are(make_attempt: Make) -> None:
    entry = Entry(kind="shell", shell="sleep 600; true")
    cause = make_attempt(entry=entry, progress_timeout=0.4).launch().wait()["first_cause"]
    assert cause["class"] == "hung"
    assert "(sleep):\n  state S\n" in cause["traceback"]


@pytest.mark.parametrize("kind", ["command", "program"])
def test_a_hang_of_a_python_program_says_where_it_is_if_py_spy_may_look(
    make_attempt: Make, tmp_path: Path, kind: str
) -> None:
    """Whether it is a command, or the script executed it."""
    if which("py-spy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("`py-spy` is not installed")
    hanging = tmp_path / "hanging.py"
    hanging.write_text("import threading\ndef wait_for_ever():\n    threading.Event().wait()\n"
                       "wait_for_ever()\n")  # fmt: skip
    command = (sys.executable, str(hanging))
    executes = f"import os\nos.execv({command[0]!r}, {list(command)!r})"
    entry = {"entry": Entry(kind="command", command=command)} if kind == "command" else {}
    attempt = make_attempt(executes, progress_timeout=2.0, **entry).launch()
    cause = attempt.wait()["first_cause"]
    assert cause["class"] == "hung"
    assert cause["traceback"].startswith("ranks 0-1 have the same stacks:\nProcess ")
    assert "wait_for_ever (hanging.py:3)" in cause["traceback"]
    attempt.until_gone()


def test_a_py_spy_that_hangs_leaves_what_the_kernel_tells(
    make_attempt: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_program(tmp_path / "bin" / "py-spy", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    entry = Entry(kind="shell", shell="sleep 600; true")
    attempt = make_attempt(entry=entry, progress_timeout=0.4, world_size=1).launch()
    assert "(sleep):\n  state S\n" in attempt.wait()["first_cause"]["traceback"]
    attempt.until_gone()


@pytest.mark.expensive
def test_a_run_that_prints_or_computes_does_not_hang(make_attempt: Make) -> None:
    source = (
        "import os, time\n"
        "end = time.monotonic() + 3\n"
        "while time.monotonic() < end:\n"
        "    if os.environ['RANK'] == '0':\n"
        "        print('step')\n"
        "        time.sleep(0.05)\n"
        "    else:\n"
        "        time.sleep(0.3)\n"
    )
    attempt = make_attempt(source, progress_timeout=1.5).launch()
    assert attempt.wait()["state"] == "succeeded"


def test_a_rank_that_is_never_up_exceeds_the_startup_timeout(make_attempt: Make) -> None:
    attempt = make_attempt("", startup_timeout=0.3, python="/bin/cat")
    (attempt.folder / "_air.py").unlink()
    os.mkfifo(attempt.folder / "_air.py")  # cat stands in for an interpreter that never gets going
    status = attempt.launch().wait()
    assert (status["state"], status["class"]) == ("failed", "timeout")
    assert "startup_timeout" in status["first_cause"]["summary"]


def test_retry_restarts_inside_the_attempt(make_attempt: Make) -> None:
    source = (
        "import os, sys\n"
        "print('restart', os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "sys.exit(3 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n"
    )
    retry = RetrySpec(max=2, on=("error",), backoff=0.01)
    attempt = make_attempt(source, retry=retry, world_size=1).launch()
    status = attempt.wait()
    assert (status["state"], status["restart"]) == ("succeeded", 1), attempt.text("agent.log")
    assert [attempt.log(0, restart=number) for number in (0, 1)] == ["restart 0\n", "restart 1\n"]


def test_retry_leaves_other_classes_alone(make_attempt: Make) -> None:
    retry = RetrySpec(max=2, on=("infra",), backoff=0.01)
    status = make_attempt("raise SystemExit(3)", retry=retry).launch().wait()
    assert (status["state"], status["restart"]) == ("failed", 0)


FAILS_BESIDE_A_STUBBORN_RANK = (
    "import os, sys\n"
    "if os.environ['RANK'] == '0':\n"
    "    while not os.path.exists(os.environ['SGPU_OUTPUT_DIR'] + '/up1'): pass\n"
    "    sys.exit(3)\n"
) + STUBBORN


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_cancel_while_a_failure_is_cleared_up_ends_the_retries(
    make_attempt: Make, by_signal: bool
) -> None:
    retry = RetrySpec(max=3, on=("infra", "error"), backoff=0.01)
    attempt = make_attempt(FAILS_BESIDE_A_STUBBORN_RANK, retry=retry, grace=600.0).launch()
    attempt.until(lambda: attempt.read()["state"] == "stopping")
    if by_signal:
        os.kill(attempt.supervisor, signal.SIGTERM)
        attempt.until(lambda: attempt.events("signal"))
    else:
        request_cancel(attempt.folder)
        attempt.until(lambda: attempt.events("cancel_requested"))
    os.kill(attempt.events("rank_started")[1]["pid"], signal.SIGKILL)
    status = attempt.wait()
    assert (status["state"], status["restart"], status["exit_code"]) == ("cancelled", 0, 130)
    attempt.until_gone()


def test_a_timeout_while_a_failure_is_cleared_up_ends_the_retries(make_attempt: Make) -> None:
    # The failure is after the start, and the grace longer than the timeout: so it ends within.
    retry = RetrySpec(max=3, on=("infra", "error"), backoff=0.01)
    attempt = make_attempt(FAILS_BESIDE_A_STUBBORN_RANK, retry=retry, timeout=0.8, grace=1.0)
    status = attempt.launch().wait()
    assert (status["state"], status["class"], status["restart"]) == ("failed", "timeout", 0)
    attempt.until_gone()


def test_a_killed_guardian_changes_nothing(make_attempt: Make) -> None:
    source = (
        "import os, time\n"
        "open(os.environ['SGPU_OUTPUT_DIR'] + '/up' + os.environ['RANK'], 'w').close()\n"
        "while not os.path.exists(os.environ['SGPU_OUTPUT_DIR'] + '/go'): time.sleep(0.01)\n"
    )
    attempt = make_attempt(source).launch()
    attempt.until(lambda: attempt.up(0))
    os.kill(attempt.guardian, signal.SIGKILL)
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    attempt.until_gone()


@pytest.mark.fault("two runs want the same GPU: they have it one after the other")
def test_runs_queue_for_devices_and_go_in_turn(make_attempt: Make, tmp_path: Any) -> None:
    gpus = Gpus(lock_dir=str(tmp_path / "gpus"), devices=("0", "1"), need=2)
    first = make_attempt(BLOCK, gpus=gpus).launch()
    first.until(lambda: first.up(0))
    source = "import os\ndef main(): return os.environ['CUDA_VISIBLE_DEVICES']"
    second = make_attempt(source, gpus=gpus, entry=function()).launch()
    single = Gpus(lock_dir=str(tmp_path / "gpus"), devices=("0", "1"), need=1)
    third = make_attempt(source, gpus=single, entry=function(), world_size=1).launch()
    assert second.read()["state"] == third.read()["state"] == "queued"
    request_cancel(first.folder)
    assert [one.wait()["state"] for one in (second, third)] == ["succeeded", "succeeded"]
    assert json.loads(second.text("ranks/0/output.json")) == "0,1"
    assert json.loads(third.text("ranks/0/output.json")) in {"0", "1"}
    assert second.read()["ended_at"] <= third.read()["started_at"]


def test_a_queued_attempt_can_be_cancelled(make_attempt: Make, tmp_path: Any) -> None:
    parallel = Parallel(lock_dir=str(tmp_path / "slots"), limit=1)
    first = make_attempt(BLOCK, parallel=parallel).launch()
    first.until(lambda: first.up(0))
    second = make_attempt(BLOCK, parallel=parallel).launch()
    third = make_attempt("", parallel=parallel).launch()
    second.until(lambda: second.read().get("waiting_for") == "max_parallel")
    request_cancel(second.folder)
    assert second.wait()["state"] == "cancelled"
    assert third.read()["state"] == "queued"
    request_cancel(first.folder)
    assert third.wait()["state"] == "succeeded"


def test_an_attempt_waits_for_earlier_ones_whatever_their_outcome(make_attempt: Make) -> None:
    first = make_attempt(BLOCK).launch()
    second = make_attempt("", wait_for=(str(first.folder),)).launch()
    first.until(lambda: first.up(0))
    second.until(lambda: second.read().get("waiting_for") == "earlier attempts")
    os.kill(first.supervisor, signal.SIGKILL)
    assert second.wait()["state"] == "succeeded"
    assert first.read()["state"] == "lost"


def test_more_devices_than_there_are_is_a_lack_of_capacity(
    make_attempt: Make, tmp_path: Any
) -> None:
    gpus = Gpus(lock_dir=str(tmp_path / "gpus"), devices=("0",), need=2)
    assert make_attempt(BLOCK, gpus=gpus).launch().wait()["class"] == "capacity"


def test_secrets_reach_the_ranks_and_never_the_disk(make_attempt: Make) -> None:
    source = "import os, sys\nsys.exit(0 if os.environ['TOKEN'].startswith('s3cr') else 1)"
    attempt = make_attempt(source, secrets={"TOKEN": "env:TOKEN"}).launch({"TOKEN": "s3cr-tlJ9"})
    assert attempt.wait()["state"] == "succeeded"
    assert files_with(b"import os", attempt.folder)
    assert files_with(b"s3cr-tlJ9", attempt.folder) == []


@pytest.mark.parametrize(
    ("failing", "files"),
    [
        ("raise ValueError(text)", ("outcome.json", "status.json", "ranks/0/0/error.json")),
        (
            (
                "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file: "
                "json.dump({'message': text}, file)\n"
                "os._exit(1)"
            ),
            ("outcome.json", "status.json"),
        ),
    ],
    ids=["our record", "torch's record"],
)
def test_a_secret_in_an_exception_is_not_reported(
    make_attempt: Make, failing: str, files: tuple[str, ...]
) -> None:
    source = f"import json, os\ntext = 'refused: ' + os.environ['TOKEN']\n{failing}"
    attempt = make_attempt(source, secrets={"TOKEN": "env:TOKEN"}, world_size=1)
    assert "***" in attempt.launch({"TOKEN": "s3cr-tlJ9"}).wait()["first_cause"]["summary"]
    assert not [name for name in files if "s3cr-tlJ9" in attempt.text(name)]


def test_an_attempt_is_launched_once(make_attempt: Make) -> None:
    attempt = make_attempt("").launch()
    with pytest.raises(OSError, match="launched before"):
        launch(attempt.folder, secrets={})
    assert attempt.wait()["state"] == "succeeded"


@pytest.mark.parametrize("given", [b"", b'{"TOKEN": "s3'], ids=["nothing", "a part"])
def test_nothing_is_started_when_the_launcher_dies_first(make_attempt: Make, given: bytes) -> None:
    attempt = make_attempt("")
    argv = [sys.executable, "-I", "-S", AGENT]
    ended = subprocess.run([*argv, attempt.folder], input=given, capture_output=True, check=False)
    assert ended.stdout.startswith(b"no secrets were given")
    (said,) = ended.stderr.decode().splitlines()  # in `agent.log`
    assert said.startswith("sgpu: nothing was launched: no secrets were given")
    assert attempt.read()["state"] == "staging"
    assert not list(attempt.folder.glob("*.lock"))


def test_of_several_launches_at_once_one_wins(make_attempt: Make) -> None:
    source = (
        "import os\n"
        "with open(os.environ['SGPU_OUTPUT_DIR'] + '/ran', 'a') as file: file.write('x')\n"
    )
    attempt = make_attempt(source)

    def start(_number: int) -> str:
        try:
            attempt.launch()
        except OSError as error:
            return str(error)
        return "won"

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(start, range(8)))
    assert answers[-1] == "won"
    assert all("launched before" in answer for answer in answers[:-1]), answers
    assert attempt.wait()["state"] == "succeeded"
    assert attempt.text("output/ran") == "xx"
    attempt.until_gone()
    assert attempt.read()["state"] == "succeeded"


def test_a_launch_beside_another_starter_touches_nothing(make_attempt: Make) -> None:
    attempt = make_attempt("")
    starter = open_lock(str(attempt.folder / "launch.lock"))
    assert try_lock(starter)
    before = sorted(attempt.folder.iterdir())
    with pytest.raises(OSError, match="launched before"):
        attempt.launch()
    assert sorted(attempt.folder.iterdir()) == sorted([*before, attempt.folder / "agent.log"])
    os.close(starter)
    assert attempt.launch().wait()["state"] == "succeeded"


def test_a_launch_without_a_spec_says_so(make_attempt: Make) -> None:
    attempt = make_attempt("")
    (attempt.folder / "spec.json").write_text("{")
    with pytest.raises(OSError, match="missing or damaged"):
        attempt.launch()


def test_an_entrypoint_refuses_a_spec_that_changed(make_attempt: Make) -> None:
    attempt = make_attempt("")
    text = attempt.text("spec.json")
    (attempt.folder / "spec.json").write_text(text.replace('"lineage":"lineage"', '"lineage":"x"'))
    status = attempt.launch().wait()
    assert (status["state"], status["class"]) == ("failed", "launch_failed_user")


def test_the_tracker_lives_from_before_the_ranks_until_the_outcome(make_attempt: Make) -> None:
    code = (
        "import json, os, sys\n"
        "folder = os.environ['SGPU_RUN_DIR']\n"
        "data = json.dumps({'env': {'MLFLOW_RUN_ID': 'abc'}})\n"
        "open(folder + '/mlflow.tmp', 'w').write(data)\n"
        "os.rename(folder + '/mlflow.tmp', folder + '/mlflow.json')\n"
        "sys.stdin.read()\n"
        "outcome = json.load(open(folder + '/outcome.json'))\n"
        "open(folder + '/seen.tmp', 'w').write(outcome['state'])\n"
        "os.rename(folder + '/seen.tmp', folder + '/seen')\n"
    )
    tracker = TrackerSpec(argv=(sys.executable, "-c", code))
    command = Entry(kind="shell", shell="echo $MLFLOW_RUN_ID")
    attempt = make_attempt(entry=command, tracker=tracker).launch()
    assert attempt.wait()["state"] == "succeeded"
    assert attempt.log() == "abc\n"
    attempt.until((attempt.folder / "seen").exists)
    assert attempt.text("seen") == "succeeded"
    lost = make_attempt(BLOCK, tracker=tracker).launch()
    lost.until(lambda: lost.up(0))
    os.kill(lost.supervisor, signal.SIGKILL)
    lost.until((lost.folder / "seen").exists)
    assert lost.text("seen") == "lost"


@pytest.mark.parametrize("asked", ["cancel", "timeout"])
def test_ranks_that_tidy_up_when_told_to_stop_have_not_succeeded(
    make_attempt: Make, asked: str
) -> None:
    source = BLOCK.replace("while True", "signal.signal(15, lambda *_: os._exit(0))\nwhile True")
    attempt = make_attempt(source, timeout=1.0 if asked == "timeout" else None).launch()
    if asked == "cancel":
        attempt.until_up()
        attempt.until(lambda: attempt.read()["state"] == "running")
        request_cancel(attempt.folder)
    status = attempt.wait()
    ends = {"cancel": ("cancelled", None), "timeout": ("failed", "timeout")}
    assert (status["state"], status["class"]) == ends[asked]
    assert {rank["exit_code"] for rank in status["ranks"]} <= {0, None}


def test_a_launch_survives_the_death_of_whoever_asked_for_it(make_attempt: Make) -> None:
    attempt = make_attempt("import os\nprint('ran', os.environ['RANK'])")
    deaf, answer = os.pipe()
    os.close(deaf)  # its end of the pipe went with it
    with open(attempt.folder / "agent.log", "wb") as log:
        subprocess.run(
            [sys.executable, "-I", "-S", AGENT, str(attempt.folder)],
            input=b"{}",
            stdout=answer,
            stderr=log,
            check=True,
        )
    os.close(answer)
    assert attempt.wait()["state"] == "succeeded"
    assert [attempt.log(rank) for rank in (0, 1)] == ["ran 0\n", "ran 1\n"]
    attempt.until_gone()


def test_a_rank_that_closed_all_descriptors_keeps_its_traceback(make_attempt: Make) -> None:
    source = "import os\nos.closerange(3, 65536)\nraise KeyError('boom')"
    cause = make_attempt(source, world_size=1).launch().wait()["first_cause"]
    assert cause["summary"] == "KeyError: 'boom'"
    assert "main.py" in cause["traceback"]


def in_the_place_of(old: Any, make_attempt: Make) -> Any:
    """Another run, whose folders are to be those of the old one."""
    folder = old.folder
    places = {"run_dir": folder, "code_dir": folder / "code", "output_dir": folder / "output"}
    return make_attempt(BLOCK, **{name: str(place) for name, place in places.items()})


def take_the_place(new: Any, folder: Path) -> None:
    folder.rename(folder.with_name("away"))
    new.folder.rename(folder)
    launch(folder, secrets={})


def test_what_old_ranks_leave_is_no_word_on_a_new_run_in_their_place(
    make_attempt: Make, tmp_path: Path
) -> None:
    source = (
        "import os, time\n"
        "def main():\n"
        "    open(os.environ['SGPU_OUTPUT_DIR'] + '/up' + os.environ['RANK'], 'w').close()\n"
        f"    while not os.path.exists('{tmp_path}/go'): time.sleep(0.01)\n"
        "    if os.environ['RANK'] == '1': raise ValueError('old')\n"
        "    return 'old'\n"
    )
    old = make_attempt(source, entry=function(), grace=20.0).launch()
    folder = old.folder
    new = in_the_place_of(old, make_attempt)
    old.until_up()
    take_the_place(new, folder)
    old.until_up()
    (tmp_path / "go").touch()
    old.until_gone()
    left = {path.name for rank in (0, 1) for path in (folder / f"ranks/{rank}").rglob("*")}
    assert not {name for name in left if name.startswith(("output.", "error."))}
    request_cancel(folder)
    assert old.wait()["state"] == "cancelled"
    new.until_gone()


@pytest.mark.parametrize("killed", [False, True])
def test_what_an_old_run_has_to_say_is_no_word_on_a_new_one_in_its_place(
    make_attempt: Make, killed: bool
) -> None:
    old = make_attempt(BLOCK).launch()
    folder = old.folder
    new = in_the_place_of(old, make_attempt)
    old.until_up()
    supervisor = old.supervisor
    take_the_place(new, folder)
    old.until(lambda: old.up(0))
    os.kill(supervisor, signal.SIGKILL if killed else signal.SIGTERM)
    old.until_gone()
    assert old.read()["state"] in ("starting", "running")
    assert not (folder / "outcome.json").exists()
    request_cancel(folder)
    assert old.wait()["state"] == "cancelled"
    new.until_gone()
