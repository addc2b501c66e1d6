"""Each command once, for real: on a small project, in a process of its own."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import IO

import pytest

COMMAND = "name: hello\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
HELLO = """\
name: hello
gpus: 2
type: CPU
entrypoint: train.py:main
args: {n: 3}
mlflow: {enabled: false}
grace: 500ms
"""
TRAIN = """\
import os, sys

def main(n):
    rank = int(os.environ["RANK"])
    print("hello from", rank, flush=True)
    return {"rank": rank, "n": n}
"""
BROKEN = """\
def main(n):
    raise ValueError("no such luck")
"""
SLEEPING = """\
name: sleepy
gpus: 1
type: CPU
command: [python3, -c, "import time; print('lift' + 'off', flush=True); time.sleep(300)"]
mlflow: {enabled: false}
grace: 500ms
"""


@pytest.fixture
def hello(sgpu):
    sgpu.write("run.yaml", HELLO)
    sgpu.write("train.py", TRAIN)
    return sgpu


def until(stream: IO[str], text: str) -> str:
    """Read lines until one holds `text`; the test's time limit is the reader's."""
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"the stream ended without `{text}`")


def test_a_run_from_plan_to_gc(hello) -> None:
    assert hello("validate").out == "run.yaml is valid: 1 run\n"

    planned = hello("plan", "--detailed-exitcode")
    assert planned.code == 2
    assert "run.hello" in planned.out
    assert not (hello.folder / ".sgpu").exists()

    refused = hello("apply")
    assert refused.code == 1
    assert "nobody is here to approve" in refused.err

    applied = hello("apply", "-y")
    assert applied.code == 0, applied.err
    assert applied.out.endswith("hello from 0\n")
    assert "hello#1 succeeded" in applied.err

    again = hello("plan", "--detailed-exitcode", "-o", "json")
    assert again.code == 0
    (change,) = again.json["data"]["changes"]
    assert (change["action"], change["reason"]) == ("no_op", "up_to_date")

    table = hello("status")
    assert "hello#1" in table.out
    (run,) = hello("status", "-o", "json").json["data"]["runs"]
    assert (run["address"], run["attempt"], run["state"]) == ("run.hello", 1, "succeeded")

    assert hello("results", "hello").out.startswith('rank 0: {"rank": 0, "n": 3}\n')
    fetched = hello("fetch", "hello")
    assert (fetched.out.strip().endswith("/hello/1/output"), fetched.err) == (
        True,
        "0 files, 0 B\n",
    )
    results = hello("results", "run.hello", "-o", "json").json["data"]["results"]
    assert results == [{"rank": r, "value": {"rank": r, "n": 3}} for r in (0, 1)]

    assert hello("logs", "hello").out == "hello from 0\n"
    everyone = hello("logs", "hello#1", "--rank", "all").out.splitlines()
    assert sorted(everyone) == ["[hello 0] hello from 0", "[hello 1] hello from 1"]
    assert hello("logs", "hello", "-f", "--rank", "1").out == "hello from 1\n"
    lines = hello("logs", "hello", "-o", "json").json["data"]["lines"]
    assert lines == [{"run": "hello#1", "rank": 0, "stream": "stdout", "text": "hello from 0"}]

    assert hello("wait", "hel*", "--timeout", "30s").code == 0
    assert hello("cancel", "hello").err == "hello#1 succeeded\n"

    shown = hello("show", "hello", "-o", "json").json["data"]
    assert shown["spec"]["args"] == {"n": 3}
    assert len(shown["history"]) == 1
    assert "history:" in hello("show", "hello").out
    assert hello("show", "hello", "-o", "markdown").out.startswith("### `hello#1` succeeded after ")

    assert hello("state", "list").out == "run.hello\n"
    assert json.loads(hello("state", "show", "hello").out)["attempt"] == 1
    pulled = json.loads(hello("state", "pull").out)
    assert pulled == hello("state", "pull", "-o", "json").json["data"]
    assert hello("state", "mv", "run.hello", "run.other").code == 0
    assert hello("state", "list").out.startswith("run.other")
    assert hello("state", "mv", "run.other", "run.hello").code == 0

    freed = hello("gc", "--keep-last", "0", "--dry-run", "-o", "json").json["data"]
    assert len(freed["attempts"]) == 1
    assert hello("gc", "--keep-last", "0").code == 0

    unattended = hello("destroy", "-o", "json")
    assert unattended.code == 1
    error = unattended.json["error"]
    assert (error["code"], error["hint"]) == (
        "not_approved",
        "if that is what you want, give `-y`",
    )
    assert hello("destroy", "-y").code == 0
    assert hello("destroy", "-y").code == 0
    assert hello("state", "rm", "hello").code == 0
    assert hello("state", "list").out == ""


def test_a_saved_plan_is_applied_once(hello) -> None:
    assert hello("plan", "--out", "hello.plan").code == 0
    assert "run.hello" in hello("show", "hello.plan").out
    applied = hello("apply", "hello.plan", "-o", "json")
    assert applied.code == 0, applied.out
    assert applied.json["data"]["attempts"] == ["hello#1"]
    assert "hello from 0" in applied.err
    twice = hello("apply", "hello.plan", "-o", "json")
    assert twice.code == 3
    assert "error" in twice.json
    options = hello("apply", "hello.plan", "--set", "gpus=3")
    assert options.code == 64


@pytest.mark.parametrize("name", ["run.json", "run.yaml"])
def test_a_run_file_that_begins_with_a_brace_is_applied(sgpu, name: str) -> None:
    run = '{"name": "hello", "gpus": 1, "type": "CPU", "command": ["true"], '
    sgpu.write(name, run + '"mlflow": {"enabled": false}}')
    assert sgpu("apply", "-y", name).code == 0
    assert sgpu("plan", "--detailed-exitcode", name).code == 0


def test_a_saved_plan_may_have_the_name_of_a_run_file(hello) -> None:
    assert hello("plan", "run.yaml", "--out", "plan.json").code == 0
    whole = (hello.folder / "plan.json").read_text()
    hello.write("cut.json", whole[: len(whole) // 2])
    assert "truncated_plan" in hello("apply", "cut.json").err
    assert hello("apply", "plan.json").code == 0


def test_a_saved_plan_of_a_subfolder_is_applied_from_above(sgpu) -> None:
    sgpu.write("sub/run.yaml", HELLO)
    sgpu.write("sub/train.py", TRAIN)
    assert sgpu("plan", "sub/run.yaml", "--out", "p").code == 0
    applied = sgpu("apply", "p")
    assert applied.code == 0, applied.err
    assert (sgpu.folder / "sub" / ".sgpu").is_dir()


@pytest.mark.parametrize("name", ["sgpu.yml", "run.yaml"])
def test_the_file_of_the_project_is_found_from_a_subfolder(sgpu, name: str) -> None:
    run = COMMAND.replace("\n", "\n    ")
    project = f"project: {{name: p}}\nruns:\n  hello:\n    {run}".replace("name: hello\n", "\n")
    sgpu.write(name, project if name == "sgpu.yml" else COMMAND)
    (sgpu.folder / ".sgpu").mkdir()  # what makes a folder with a run file alone a project
    deep = sgpu.folder / "deep" / "er"
    deep.mkdir(parents=True)
    assert sgpu("validate", cwd=deep).out == f"../../{name} is valid: 1 run\n"
    planned = sgpu("plan", "-o", "json", cwd=deep).json["data"]
    assert [change["address"] for change in planned["changes"]] == ["run.hello"]
    assert sgpu("apply", "-y", cwd=deep).code == 0
    assert "hello#1" in sgpu("status", cwd=deep).out
    assert sgpu("destroy", "-y", cwd=deep).code == 0
    assert list(deep.iterdir()) == []

    sgpu.write(name, "nme: x\n")
    assert f"--> ../../{name}:1:1" in sgpu("plan", cwd=deep).err


def test_a_run_file_here_comes_before_the_project_above(sgpu) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\nruns: {}\n")
    sgpu.write("sub/run.yaml", COMMAND)
    assert sgpu("validate", cwd=sgpu.folder / "sub").out == "run.yaml is valid: 1 run\n"
    sgpu.write("sub/sgpu.yml", "project: {name: q}\nruns: {}\n")
    assert sgpu("validate", cwd=sgpu.folder / "sub").out == "sgpu.yml is valid: 0 runs\n"


def test_a_project_without_any_file_is_named_from_below(sgpu) -> None:
    (sgpu.folder / ".sgpu").mkdir()
    (sgpu.folder / "sub").mkdir()
    for command in ("plan", "validate", "apply"):
        refused = sgpu(command, "-o", "json", cwd=sgpu.folder / "sub")
        error = refused.json["error"]
        assert (refused.code, error["code"]) == (1, "not_found")
        assert error["message"] == f"there is no `sgpu.yml` and no `run.yaml` in `{sgpu.folder}`"
    assert "no `run.yaml` here" in sgpu("plan").err


@pytest.mark.parametrize("named", ["b/run.yaml", "linked/run.yaml"])
def test_a_linked_run_file_has_its_code_and_state_where_it_is_named(sgpu, named: str) -> None:
    sgpu.write("a/run.yaml", HELLO)
    sgpu.write("a/train.py", TRAIN.replace("hello from", "not me"))
    sgpu.write("b/train.py", TRAIN)
    (sgpu.folder / "b" / "run.yaml").symlink_to("../a/run.yaml")
    (sgpu.folder / "linked").symlink_to("b")
    assert sgpu("plan", named, "--out", "p").code == 0
    saved = json.loads((sgpu.folder / "p").read_text())
    assert saved["project"] == str(sgpu.folder / "b")
    assert [change["launch"]["owner"] for change in saved["changes"]] == ["run.yaml"]
    (sgpu.folder / "b" / "train.py").write_text(TRAIN.replace("hello", "changed"))
    applied = sgpu("apply", named, "-y", "-o", "json")
    assert applied.code == 0, applied.out
    assert "changed from 0" in applied.err
    assert (sgpu.folder / "b" / ".sgpu").is_dir()
    assert not (sgpu.folder / "a" / ".sgpu").exists()
    again = sgpu("plan", named, "-o", "json").json["data"]["changes"]
    assert [change["action"] for change in again] == ["no_op"]
    shutil.rmtree(Path(sgpu.environ["XDG_DATA_HOME"]))  # the code of a plan, from its own folder
    sgpu.write("b/notes.md", "other bytes")
    assert sgpu("plan", named, "--out", "q").code == 0
    shutil.rmtree(Path(sgpu.environ["XDG_DATA_HOME"]))
    assert sgpu("apply", "q").code == 0


def test_a_plan_of_another_project_is_refused(hello) -> None:
    assert hello("plan", "--out", "hello.plan").code == 0
    other = hello.folder.parent / "other"
    other.mkdir()
    (other / "run.yaml").write_text(HELLO.replace("hello", "other"))
    refused = hello("apply", str(hello.folder / "hello.plan"), "-o", "json", cwd=other)
    assert refused.code == 3
    assert refused.json["error"]["code"] == "other_project"
    assert not (other / ".sgpu").exists()
    assert not (hello.folder / ".sgpu").exists()


def test_a_failed_run_is_5_with_its_traceback_and_stays_failed(hello) -> None:
    hello.write("train.py", BROKEN)
    applied = hello("apply", "-y", "-o", "json")
    assert applied.code == 5
    assert applied.json["error"]["code"] == "run_failed"
    (run,) = applied.json["data"]["runs"]
    assert run["first_cause"]["class"] == "exception"
    assert "no such luck" in run["first_cause"]["traceback"]

    left = hello("apply", "-y")
    assert left.code == 5
    assert "left as they are, failed: `hello#1`" in left.err
    assert hello("wait", "hello").code == 5
    retried = hello("apply", "-y", "--retry-failed")
    assert retried.code == 5
    assert "hello#2 failed" in retried.err
    assert "no such luck" in retried.err


def test_one_signal_off_a_terminal_detaches_and_the_run_goes_on(sgpu) -> None:
    sgpu.write("run.yaml", SLEEPING)
    with sgpu.start("apply", "-y") as process:
        until(process.stdout, "liftoff")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "detached: the run goes on" in err
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert run["state"] == "running"

    waited = sgpu("wait", "sleepy", "--timeout", "100ms", "-o", "json")
    assert waited.code == 1
    error = waited.json["error"]
    assert (error["code"], error["retryable"]) == ("wait_timeout", True)

    changed = sgpu("plan", "--set", "grace=1s", "--set", "gpus=2", "-o", "json")
    assert changed.code == 1
    assert changed.json["data"]["applyable"] is False
    replacing = sgpu("apply", "--set", "gpus=2", "--on-active", "replace", "-y")
    assert replacing.code == 1
    assert "`-y` does not cover that" in replacing.err

    with sgpu.start("apply", "-y") as process:
        until(process.stdout, "liftoff")
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 130

    assert "sleepy#1 cancelled" in sgpu("cancel", "sleepy").err


def test_detached_apply_returns_at_once(sgpu) -> None:
    sgpu.write("run.yaml", SLEEPING)
    applied = sgpu("apply", "-y", "--detach", "-o", "json")
    assert applied.code == 0
    assert applied.json["data"]["attempts"] == ["sleepy#1"]
    assert sgpu("destroy", "-y").code == 0
    assert sgpu("status", "-o", "json").json["data"]["runs"] == []


def test_a_reader_that_goes_away_is_no_error_message(hello) -> None:
    assert hello("apply", "-y").code == 0
    with hello.start("state", "pull") as process:
        process.stdout.close()
        err = process.stderr.read()
    assert err == ""


def test_what_init_writes_plans_and_applies(sgpu) -> None:
    assert sgpu("init", "--name", "first").code == 0
    assert sgpu("validate").code == 0
    applied = sgpu("apply", "-y", "--set", "mlflow.enabled=false")
    assert applied.code == 0, applied.err
    assert "rank 0 of 2: step 5" in applied.out


def test_schema_explains_fields_and_writes_files(sgpu) -> None:
    assert "run.env.variables" in sgpu("schema", "run.env.variables").out
    assert sgpu("schema", "run", "-o", "json").json["data"]["children"]
    wrong = sgpu("schema", "run.env.variabels")
    assert wrong.code == 1
    assert "variables" in wrong.err
    assert sgpu("schema", "--write", "here").code == 0
    assert (sgpu.folder / "here" / "run.v1.schema.json").is_file()


def test_project_is_found_from_a_folder_below(hello) -> None:
    hello.write("sgpu.yml", f"project: {{name: p}}\nruns:\n  hello:\n{_indented(HELLO)}")
    os.mkdir(hello.folder / "deep")
    assert hello("apply", "-y", "--detach").code == 0
    below: Path = hello.folder / "deep"
    assert hello("wait", "hello", cwd=below).code == 0


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines() if not line.startswith("name"))


def test_status_prints_the_command_that_shows_metrics(hello) -> None:
    assert hello("apply", "-y").code == 0
    uri = f"sqlite:///{hello.folder}/.sgpu/mlflow.db"
    hello.write(".sgpu/default/runs/hello/1/mlflow.json", json.dumps({"tracking_uri": uri}))
    status = hello("status")
    assert f"metrics: mlflow ui --backend-store-uri {uri}" in status.err
    assert "metrics" not in status.out


def test_several_runs_are_prefixed_and_each_ending_is_told(sgpu) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nruns:\n"
        "  good: {gpus: 1, type: CPU, command: [echo, fine], mlflow: {enabled: false}}\n"
        "  bad: {gpus: 1, type: CPU, command: [sh, -c, 'exit 3'], mlflow: {enabled: false}}\n",
    )
    applied = sgpu("apply", "-y")
    assert applied.code == 5
    assert "[good 0] fine\n" in applied.out
    assert applied.err.count("good#1 succeeded") == 1
    assert "good#1 succeeded after" in applied.err
    assert applied.err.count("bad#1 failed") == 1
    assert "bad#1 failed after" in applied.err
    assert "exit code 3: rank 0 exited with 3" in applied.err
    assert "\n2 runs: 1 succeeded, 1 failed\nerror: `bad#1` did not succeed" in applied.err


def test_launches_are_told_in_the_order_of_the_plan(sgpu) -> None:
    sgpu.write(
        "run.yaml",
        "name: many\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"
        "command: [echo, '${matrix.n}']\nmatrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n",
    )
    applied = sgpu("apply", "-y", "--detach")
    assert applied.code == 0
    told = [line for line in applied.err.splitlines() if line.endswith(" launched")]
    assert told == [f'many["n={n}"]#1 launched' for n in range(1, 10)]
    assert "9 runs: " in applied.err
    assert """follow with `sgpu logs -f 'many["n=1"]'`""" in applied.err
    assert sgpu("wait", "many").code == 0


def test_a_run_that_waits_for_the_one_before_it_is_queued(sgpu) -> None:
    sgpu.write("run.yaml", SLEEPING)
    assert "sleepy#1 launched\n" in sgpu("apply", "-y", "--detach").err
    queued = sgpu("apply", "-y", "--detach", "--set", "gpus=2", "--on-active", "queue")
    assert queued.code == 0
    assert "sleepy#2 queued: it starts when sleepy#1 has ended\n" in queued.err
    assert "launched" not in queued.err


def test_a_rank_that_is_not_there_is_an_error(sgpu) -> None:
    sgpu.write("run.yaml", COMMAND.replace("hello", "few"))
    assert sgpu("apply", "-y").code == 0
    refused = sgpu("logs", "few", "--rank", "9")
    assert refused.code == 1
    assert "the ranks are 0 to 0" in refused.err


def test_logs_show_one_restart_and_no_secret(sgpu) -> None:
    value = "s3cr-tlJ9/x"
    sgpu.environ["SECRET_SOURCE"] = value
    script = 'echo "try $TORCHELASTIC_RESTART_COUNT $TOKEN"; [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]'
    sgpu.write(
        "run.yaml",
        "name: again\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"
        f"command: |\n  {script}\n"
        "env: {secrets: {TOKEN: 'env:SECRET_SOURCE'}}\n"
        "retry: {max: 1, on: [error], backoff: 0s}\n",
    )
    applied = sgpu("apply", "-y")
    assert applied.code == 0, applied.err
    assert sgpu("logs", "again").out == "try 0 ***\ntry 1 ***\n"
    assert sgpu("logs", "again", "--restart", "1").out == "try 1 ***\n"
    assert "cannot be resolved" not in sgpu("logs", "again").err
    del sgpu.environ["SECRET_SOURCE"]
    unhidden = sgpu("logs", "again", "--restart", "1")
    assert unhidden.out == f"try 1 {value}\n"
    assert "warning: `env:SECRET_SOURCE` cannot be resolved here" in unhidden.err
    sgpu.environ["SECRET_SOURCE"] = value
    assert value not in applied.out + applied.err + sgpu("logs", "again", "-o", "json").out


def test_a_file_that_the_command_itself_writes_to_is_no_code(sgpu) -> None:
    sgpu.write("run.yaml", COMMAND.replace("hello", "few").replace("'true'", "ls"))
    with (sgpu.folder / "out.txt").open("w") as out:
        process = sgpu.start("apply", "-y", stdout=out)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 0, err
    shown = (sgpu.folder / "out.txt").read_text()
    assert "warning[own_output]: `out.txt` is written by this command" in shown
    assert "list `out.txt` in `.sgpuignore`" in shown
    assert "out.txt" not in sgpu("logs", "few").out
