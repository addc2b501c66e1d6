"""Each command once, for real: on a small project, in a process of its own."""

import io
import json
import os
import re
import shutil
import signal
from contextlib import redirect_stdout
from pathlib import Path
from typing import IO

import pytest

from sgpu_decl.api import Session
from sgpu_decl.cli.main import main
from sgpu_decl.planning.location import Location
from tests.cli.conftest import Shell
from tests.support import COMMAND_RUN, FUNCTION_RUN, PATIENCE

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
def hello(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", HELLO)
    sgpu.write("train.py", TRAIN)
    return sgpu


def until(stream: IO[str] | None, text: str) -> str:
    """Read lines until one holds `text`; the test's time limit is the reader's."""
    for line in stream or ():
        if text in line:
            return line
    raise AssertionError(f"the stream ended without `{text}`")


def test_a_run_from_plan_to_gc(hello: Shell) -> None:
    assert hello.here("validate").out == "run.yaml is valid: 1 run\n"

    planned = hello("plan", "--detailed-exitcode")
    assert planned.code == 2
    assert "run.hello" in planned.out
    assert not (hello.folder / ".sgpu").exists()

    refused = hello("apply")
    assert refused.code == 1
    assert "cannot ask for approval" in refused.err

    applied = hello.ran("apply", "-y")
    assert applied.out.endswith("hello from 0\n")
    assert "hello#1 succeeded" in applied.err

    (change,) = hello.done("plan", "--detailed-exitcode", "-o", "json").json["data"]["changes"]
    assert (change["action"], change["reason"]) == ("no_op", "up_to_date")

    assert "hello#1" in hello.here("status").out
    (run,) = hello.data("status")["runs"]
    assert (run["address"], run["attempt"], run["state"]) == ("run.hello", 1, "succeeded")

    assert hello.here("results", "hello").out.startswith('rank 0: {"rank": 0, "n": 3}\n')
    fetched = hello.here("fetch", "hello")
    assert (fetched.out.strip().endswith("/hello/1/output"), fetched.err) == (
        True,
        "the ranks of `hello#1` wrote no file to SGPU_OUTPUT_DIR\n",
    )
    results = hello.data("results", "run.hello")["results"]
    assert results == [{"rank": r, "value": {"rank": r, "n": 3}} for r in (0, 1)]

    assert hello.here("logs", "hello").out == "hello from 0\n"
    everyone = hello.here("logs", "hello#1", "--rank", "all").out.splitlines()
    assert sorted(everyone) == ["[hello 0] hello from 0", "[hello 1] hello from 1"]
    assert hello.here("logs", "hello", "-f", "--rank", "1").out == "hello from 1\n"
    lines = hello.data("logs", "hello")["lines"]
    assert lines == [{"run": "hello#1", "rank": 0, "stream": "stdout", "text": "hello from 0"}]

    hello.done("wait", "hel*", "--timeout", "2m")
    assert hello.here("cancel", "hello").err == "hello#1 had ended already: succeeded\n"

    shown = hello.data("show", "hello")
    assert shown["spec"]["args"] == {"n": 3}
    assert len(shown["history"]) == 1
    assert "history:" in hello.here("show", "hello").out
    markdown = hello.here("show", "hello", "-o", "markdown").out
    assert markdown.startswith("### `hello#1` succeeded after ")

    assert hello.here("state", "list").out == "run.hello\n"
    assert json.loads(hello.here("state", "show", "hello").out)["attempt"] == 1
    assert json.loads(hello.here("state", "pull").out) == hello.data("state", "pull")
    hello.done("state", "mv", "run.hello", "run.other")
    assert "run.other" in hello.here("state", "list").out.splitlines()
    hello.done("state", "mv", "run.other", "run.hello")

    freed = hello.data("gc", "-y", "--all", "--keep-last", "0", "--dry-run")
    assert len(freed["attempts"]) == 1
    hello.done("gc", "-y", "--all", "--keep-last", "0")

    error = hello.exits(1, "destroy", "-o", "json").json["error"]
    assert (error["code"], error["hint"]) == (
        "not_approved",
        "if that is what you want, give `-y`",
    )
    hello.done("destroy", "-y")
    hello.done("destroy", "-y")
    hello.done("state", "rm", "hello")
    assert hello.here("state", "list").out == "run.hello (gone)\n"


def test_a_saved_plan_is_applied_once(hello: Shell) -> None:
    hello.done("plan", "--out", "hello.plan")
    assert "run.hello" in hello.here("show", "hello.plan").out
    applied = hello.done("apply", "hello.plan", "-o", "json")
    assert applied.json["data"]["attempts"] == ["hello#1"]
    assert "hello from 0" in applied.err
    assert "error" in hello.exits(3, "apply", "hello.plan", "-o", "json").json
    hello.exits(64, "apply", "hello.plan", "--set", "gpus=3")


@pytest.mark.parametrize("name", ["run.json", "run.yaml"])
def test_a_run_file_that_begins_with_a_brace_is_applied(sgpu: Shell, name: str) -> None:
    run = '{"name": "hello", "gpus": 1, "type": "CPU", "command": ["true"], '
    sgpu.write(name, run + '"mlflow": {"enabled": false}}')
    sgpu.done("apply", "-y", name)
    sgpu.done("plan", "--detailed-exitcode", name)


def test_a_saved_plan_may_have_the_name_of_a_run_file(hello: Shell) -> None:
    hello.done("plan", "run.yaml", "--out", "plan.json")
    whole = (hello.folder / "plan.json").read_text()
    hello.write("cut.json", whole[: len(whole) // 2])
    assert "truncated_plan" in hello.here("apply", "cut.json").err
    hello.done("apply", "plan.json")


def test_a_saved_plan_of_a_subfolder_is_applied_from_above(sgpu: Shell) -> None:
    sgpu.write("sub/run.yaml", HELLO)
    sgpu.write("sub/train.py", TRAIN)
    sgpu.done("plan", "sub/run.yaml", "--out", "p")
    sgpu.done("apply", "p")
    assert (sgpu.folder / "sub" / ".sgpu").is_dir()


@pytest.mark.parametrize("name", ["sgpu.yml", "run.yaml"])
def test_the_file_of_the_project_is_found_from_a_subfolder(sgpu: Shell, name: str) -> None:
    run = COMMAND_RUN.replace("\n", "\n    ")
    project = f"project: {{name: p}}\nruns:\n  hello:\n    {run}".replace("name: hello\n", "\n")
    sgpu.write(name, project if name == "sgpu.yml" else COMMAND_RUN)
    (sgpu.folder / ".sgpu").mkdir()  # what makes a folder with a run file alone a project
    deep = sgpu.folder / "deep" / "er"
    deep.mkdir(parents=True)
    assert sgpu.here("validate", cwd=deep).out == f"../../{name} is valid: 1 run\n"
    planned = sgpu.data("plan", cwd=deep)
    assert [change["address"] for change in planned["changes"]] == ["run.hello"]
    sgpu.done("apply", "-y", cwd=deep)
    assert "hello#1" in sgpu.here("status", cwd=deep).out
    sgpu.done("destroy", "-y", cwd=deep)
    assert list(deep.iterdir()) == []

    sgpu.write(name, "nme: x\n")
    assert f"--> ../../{name}:1:1" in sgpu.here("plan", cwd=deep).err


def test_a_run_file_here_comes_before_the_project_above(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\nruns: {}\n")
    sgpu.write("sub/run.yaml", COMMAND_RUN)
    assert sgpu.here("validate", cwd=sgpu.folder / "sub").out == "run.yaml is valid: 1 run\n"
    sgpu.write("sub/sgpu.yml", "project: {name: q}\nruns: {}\n")
    assert sgpu.here("validate", cwd=sgpu.folder / "sub").out == "sgpu.yml is valid: 0 runs\n"


def test_a_project_without_any_file_is_named_from_below(sgpu: Shell) -> None:
    (sgpu.folder / ".sgpu").mkdir()
    (sgpu.folder / "sub").mkdir()
    for command in ("plan", "validate", "apply"):
        refused = sgpu(command, "-o", "json", cwd=sgpu.folder / "sub")
        error = refused.json["error"]
        assert (refused.code, error["code"]) == (1, "not_found")
        assert error["message"] == f"there is no `sgpu.yml` and no `run.yaml` in `{sgpu.folder}`"
    assert "no `run.yaml` here" in sgpu.here("plan").err


@pytest.mark.parametrize("named", ["b/run.yaml", "linked/run.yaml"])
def test_a_linked_run_file_has_its_code_and_state_where_it_is_named(
    sgpu: Shell, named: str
) -> None:
    sgpu.write("a/run.yaml", HELLO)
    sgpu.write("a/train.py", TRAIN.replace("hello from", "not me"))
    sgpu.write("b/train.py", TRAIN)
    (sgpu.folder / "b" / "run.yaml").symlink_to("../a/run.yaml")
    (sgpu.folder / "linked").symlink_to("b")
    sgpu.done("plan", named, "--out", "p")
    saved = json.loads((sgpu.folder / "p").read_text())
    assert saved["project"] == str(sgpu.folder / "b")
    assert [change["launch"]["owner"] for change in saved["changes"]] == ["run.yaml"]
    (sgpu.folder / "b" / "train.py").write_text(TRAIN.replace("hello", "changed"))
    assert "changed from 0" in sgpu.done("apply", named, "-y", "-o", "json").err
    assert (sgpu.folder / "b" / ".sgpu").is_dir()
    assert not (sgpu.folder / "a" / ".sgpu").exists()
    assert [change["action"] for change in sgpu.data("plan", named)["changes"]] == ["no_op"]
    shutil.rmtree(Path(sgpu.environ["XDG_DATA_HOME"]))  # the code of a plan, from its own folder
    sgpu.write("b/notes.md", "other bytes")
    sgpu.done("plan", named, "--out", "q")
    shutil.rmtree(Path(sgpu.environ["XDG_DATA_HOME"]))
    sgpu.done("apply", "q")


def test_a_plan_of_another_project_is_refused(hello: Shell) -> None:
    hello.done("plan", "--out", "hello.plan")
    other = hello.folder.parent / "other"
    other.mkdir()
    (other / "run.yaml").write_text(HELLO.replace("hello", "other"))
    refused = hello.exits(3, "apply", str(hello.folder / "hello.plan"), "-o", "json", cwd=other)
    assert refused.json["error"]["code"] == "other_project"
    assert not (other / ".sgpu").exists()
    assert not (hello.folder / ".sgpu").exists()


def test_a_failed_run_is_5_with_its_traceback_and_stays_failed(hello: Shell) -> None:
    hello.write("train.py", BROKEN)
    applied = hello.exits(5, "apply", "-y", "-o", "json")
    assert applied.json["error"]["code"] == "run_failed"
    (run,) = applied.json["data"]["runs"]
    assert run["first_cause"]["class"] == "exception"
    assert "no such luck" in run["first_cause"]["traceback"]

    left = hello.exits(5, "apply", "-y")
    assert "not launched again, because the last attempt failed: `hello#1`" in left.err
    hello.exits(5, "wait", "hello")
    retried = hello.exits(5, "apply", "-y", "--retry-failed")
    assert "hello#2 failed" in retried.err
    assert "no such luck" in retried.err


def test_one_signal_off_a_terminal_detaches_and_the_run_goes_on(sgpu: Shell) -> None:
    sgpu.write("run.yaml", SLEEPING)
    with sgpu.start("apply", "-y") as process:
        until(process.stdout, "liftoff")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "detached: the run goes on" in err
    (run,) = sgpu.data("status")["runs"]
    assert run["state"] == "running"

    error = sgpu.exits(1, "wait", "sleepy", "--timeout", "100ms", "-o", "json").json["error"]
    assert (error["code"], error["retryable"]) == ("wait_timeout", True)

    changed = sgpu.exits(1, "plan", "--set", "grace=1s", "--set", "gpus=2", "-o", "json")
    assert changed.json["data"]["applyable"] is False
    replacing = sgpu.exits(1, "apply", "--set", "gpus=2", "--on-active", "replace", "-y")
    assert "`-y` does not cover that" in replacing.err

    with sgpu.start("apply", "-y") as process:
        until(process.stdout, "liftoff")
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130

    assert "sleepy#1 cancelled" in sgpu.here("cancel", "sleepy").err


def test_detached_apply_returns_at_once(sgpu: Shell) -> None:
    sgpu.write("run.yaml", SLEEPING)
    applied = sgpu.done("apply", "-y", "--detach", "-o", "json")
    assert applied.json["data"]["attempts"] == ["sleepy#1"]
    sgpu.done("destroy", "-y")
    assert sgpu.data("status")["runs"] == []


def test_a_reader_that_goes_away_is_no_error_message(hello: Shell) -> None:
    hello.done("apply", "-y")
    with hello.start("state", "pull") as process:
        process.stdout.close()
        err = process.stderr.read()
    assert err == ""


def test_what_init_writes_plans_and_applies(sgpu: Shell) -> None:
    sgpu.done("init", "--name", "first")
    sgpu.done("validate")
    assert "rank 0 of 2: step 5" in sgpu.done("apply", "-y", "--set", "mlflow.enabled=false").out


def test_schema_lists_prints_and_writes_schemas(sgpu: Shell) -> None:
    names = sgpu.here("schema").out.split()
    assert {"run", "project", "plan"} <= set(names)
    assert list(sgpu.data("schema")) == names
    assert "hint: `sgpu explain run.gpus` does" in sgpu.exits(64, "schema", "run.gpus").err
    sgpu.done("schema", "--write", "here")
    assert (sgpu.folder / "here" / "run.v1.schema.json").is_file()


def test_status_prints_the_command_that_shows_metrics(hello: Shell) -> None:
    hello.done("apply", "-y")
    uri = f"sqlite:///{hello.folder}/.sgpu/mlflow.db"
    hello.write(".sgpu/default/runs/hello/1/mlflow.json", json.dumps({"tracking_uri": uri}))
    status = hello.here("status")
    assert "metrics: `sgpu mlflow ui`\n" in status.err
    assert "metrics" not in status.out


def test_several_runs_are_prefixed_and_each_ending_is_told(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nruns:\n"
        "  good: {gpus: 1, type: CPU, command: [echo, fine], mlflow: {enabled: false}}\n"
        "  bad: {gpus: 1, type: CPU, command: [sh, -c, 'exit 3'], mlflow: {enabled: false}}\n",
    )
    applied = sgpu.exits(5, "apply", "-y")
    assert "[good 0] fine\n" in applied.out
    assert applied.err.count("good#1 succeeded") == 1
    assert "good#1 succeeded after" in applied.err
    assert applied.err.count("bad#1 failed") == 1
    assert "bad#1 failed after" in applied.err
    assert "exit code 3: rank 0 exited with 3" in applied.err
    assert "\n2 runs: 1 succeeded, 1 failed\nerror[run_failed]: `bad#1` did" in applied.err


def test_launches_are_told_in_the_order_of_the_plan(sgpu: Shell) -> None:
    sgpu.write(
        "run.yaml",
        "name: many\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"
        "command: [echo, '${matrix.n}']\nmatrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n",
    )
    applied = sgpu.done("apply", "-y", "--detach")
    told = [line for line in applied.err.splitlines() if line.endswith(" launched")]
    assert told == [f'many["n={n}"]#1 launched' for n in range(1, 10)]
    assert "9 runs: " in applied.err
    ended = re.search(r"9 succeeded", applied.err) is not None
    going_on = "all have ended" if ended else r"(?:they|\d of them) go on"
    assert re.search(going_on + r": see `sgpu status`, and `sgpu logs -f many`", applied.err)
    assert "n=1" not in applied.err.splitlines()[-1]
    sgpu.done("wait", "many")


def test_a_command_in_a_message_names_the_target(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: one\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"
               "command: [echo, hello]\ntargets: {prod: {}}\n")  # fmt: skip
    applied = sgpu.here("apply", "-y", "--detach", "-t", "prod")
    assert "follow with `sgpu logs -f one -t prod`" in applied.err
    sgpu.done("wait", "one", "-t", "prod")


def test_a_run_that_waits_for_the_one_before_it_is_queued(sgpu: Shell) -> None:
    sgpu.write("run.yaml", SLEEPING)
    assert "sleepy#1 launched\n" in sgpu.here("apply", "-y", "--detach").err
    queued = sgpu.done("apply", "-y", "--detach", "--set", "gpus=2", "--on-active", "queue")
    assert "sleepy#2 queued: it starts when sleepy#1 has ended\n" in queued.err
    assert "launched" not in queued.err
    shown = sgpu.here("show", "sleepy").out
    assert shown.startswith("run.sleepy\n  sleepy#2 queued, waits for earlier attempts to end\n")


def test_arguments_that_look_like_fields_are_none(hello: Shell) -> None:
    os.mkfifo(hello.folder.parent / "pipe")
    waits = f"def main(until, on_active):\n    open({str(hello.folder / 'pipe')!r}).read()\n"
    hello.write("train.py", waits)
    hello.write("run.yaml", HELLO.replace("{n: 3}", "{until: always, on_active: parallel}"))
    hello.done("apply", "-y", "--detach")
    runs = Session.open(Location(project=hello.folder)).runs
    assert [str(ref) for ref in runs.current()] == ["hello#1"]
    assert runs.active_calls("local") == 0
    hello.done("cancel", "hello")
    hello.exits(5, "wait", "hello")
    assert "because: a rerun was requested" in hello.here("plan", "--rerun", "hello").out
    hello.write("run.yaml", HELLO + "until: always\n")
    assert "(`until: always`)" in hello.here("plan").out


def test_a_run_is_no_call_whatever_its_fields_are(sgpu: Shell) -> None:
    sgpu.write("run.yaml", SLEEPING + "until: always\non_active: parallel\n")
    sgpu.done("apply", "-y", "--detach")
    assert Session.open(Location(project=sgpu.folder)).runs.active_calls("local") == 0
    sgpu.done("cancel", "sleepy")


def test_a_rank_that_is_not_there_is_an_error(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN.replace("hello", "few"))
    sgpu.done("apply", "-y")
    assert "the ranks are 0 to 0" in sgpu.exits(1, "logs", "few", "--rank", "9").err


def test_logs_show_one_restart_and_no_secret(sgpu: Shell) -> None:
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
    applied = sgpu.done("apply", "-y")
    assert sgpu.here("logs", "again").out == "try 0 ***\ntry 1 ***\n"
    assert sgpu.here("logs", "again", "--restart", "1").out == "try 1 ***\n"
    assert "cannot be resolved" not in sgpu.here("logs", "again").err
    del sgpu.environ["SECRET_SOURCE"]
    unhidden = sgpu.here("logs", "again", "--restart", "1")
    assert unhidden.out == f"try 1 {value}\n"
    assert "warning: `env:SECRET_SOURCE` cannot be resolved here" in unhidden.err
    sgpu.environ["SECRET_SOURCE"] = value
    assert value not in applied.out + applied.err + sgpu.here("logs", "again", "-o", "json").out


def test_a_tuple_as_a_result_is_shown_as_one(sgpu: Shell) -> None:
    sgpu.write("train.py", "def main():\n    return 1, 'two'\n")
    sgpu.write("run.yaml", FUNCTION_RUN)
    assert sgpu.here("apply", "-y").code == 0
    assert sgpu.here("results", "a").out == "rank 0: (1, 'two')\n"
    assert "(1, 'two')" in sgpu.here("results", "a", "-o", "markdown").out
    (result,) = sgpu.here("results", "a", "-o", "json").json["data"]["results"]
    assert result["value"]["repr"] == "(1, 'two')"


def test_results_show_no_secret_and_say_which_hold_one(sgpu: Shell) -> None:
    key = "-----BEGIN KEY-----\nMIIBsecret0123\n-----END KEY-----"
    sgpu.environ.update(FIRST="s3cr-tlJ9/x", SECOND=key)
    sgpu.write(
        "train.py",
        "import os\n\ndef main():\n    first, second = os.environ['ONE'], os.environ['TWO']\n"
        "    if os.environ['RANK'] == '0':\n"
        "        return {'url': f'x:{first}@y', first: [1, None]}\n"
        "    if os.environ['RANK'] == '1':\n        return {1: second.splitlines()[1]}\n"
        "    return 'nothing'\n",
    )
    sgpu.write(
        "run.yaml",
        "name: known\ngpus: 3\ntype: CPU\nmlflow: {enabled: false}\nentrypoint: train.py:main\n"
        "env: {secrets: {ONE: 'env:FIRST', TWO: 'env:SECOND'}}\n",
    )
    sgpu.done("apply", "-y")
    del sgpu.environ["FIRST"], sgpu.environ["SECOND"]  # they are not looked up once more
    shown = sgpu.here("results", "known")
    structured = sgpu.here("results", "known", "-o", "json")
    for one in (shown, structured):
        assert "s3cr-tlJ9/x" not in one.out + one.err
        assert "MIIBsecret0123" not in one.out + one.err
        assert one.err == (
            "warning: what ranks 0, 1 of `known#1` returned holds the value of a secret "
            "(`ONE`, `TWO`): `output.json` or `output.pkl` of the rank keeps it in clear\n"
        )
    first, second, third = structured.json["data"]["results"]
    masked = {"url": "x:***@y", "***": [1, None]}
    assert first == {"rank": 0, "value": masked, "secrets": ["ONE"]}
    assert second["secrets"] == ["TWO"]
    assert second["value"]["repr"] == "<holds values of secrets: TWO>"
    assert third == {"rank": 2, "value": "nothing"}
    ranks = sgpu.folder / ".sgpu" / "default" / "runs" / "known" / "1" / "ranks"
    assert "s3cr-tlJ9/x" in (ranks / "0" / "output.json").read_text()
    assert Path(second["value"]["pickle"]) == ranks / "1" / "output.pkl"
    assert b"MIIBsecret0123" in (ranks / "1" / "output.pkl").read_bytes()


class Counting(io.StringIO):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_many_lines_come_whole_and_not_one_by_one(
    sgpu: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = "".join(f"line {number}\n" for number in range(100_000))
    source = tmp_path / "lines.txt"
    source.write_text(lines + "é \x1b[31mred\n\x1b[2J")
    end = "é \x1b[31mred\x1b[0m\n\\x1b[2J\n"
    sgpu.write("run.yaml", COMMAND_RUN.replace("'true'", f"cat, {source}"))
    monkeypatch.chdir(sgpu.folder)
    for name, value in sgpu.environ.items():
        monkeypatch.setenv(name, value)
    for before, arguments in (
        ("", ("apply", "-y")),
        ("", ("logs", "hello")),
        ("[hello 0] ", ("logs", "hello", "-f", "--rank", "all")),
    ):
        with redirect_stdout(Counting()) as out:
            assert main(arguments) == 0
        whole = "".join(f"{before}{line}\n" for line in (lines + end).split("\n")[:-1])
        assert out.getvalue().endswith(whole)
        assert out.writes < 1_000


def test_a_file_that_the_command_itself_writes_to_is_no_code(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN.replace("hello", "few").replace("'true'", "ls"))
    with (sgpu.folder / "out.txt").open("w") as out:
        process = sgpu.start("apply", "-y", stdout=out)
        err = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, err
    shown = (sgpu.folder / "out.txt").read_text()
    assert "warning[own_output]: run.few: `out.txt` is written by this command" in shown
    assert "list `out.txt` in `.sgpuignore`" in shown
    assert "out.txt" not in sgpu.here("logs", "few").out


def test_a_change_of_the_file_that_changes_nothing_launches_nothing(sgpu: Shell) -> None:
    run = "name: a\ngpus: 1\ntype: CPU\nentrypoint: a.py:f\nmlflow: {enabled: false}\n"
    sgpu.write("a.py", "def f(): pass\n")
    sgpu.write("run.yaml", run)
    sgpu.done("apply", "-y")
    for same in (
        "args: {}",
        "args: []",
        "env: {dependencies: []}",
        "ray: false",
        "code: {root: .}",
    ):
        sgpu.write("run.yaml", f"{run}{same}\n")
        assert sgpu.here("plan", "--detailed-exitcode").code == 0, same
