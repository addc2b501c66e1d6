"""What is printed as a next step works as it is printed; what ended badly is told by who it was."""

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from sgpu_decl.agent.system.processes import carriers, send_signal
from tests.cli.conftest import AtTerminal, Shell

FAILS = """\
name: {name}
gpus: 2
type: CPU
command: {command}
mlflow: {{enabled: false}}
grace: 500ms
targets: {{dev: {{}}}}
"""


def printed(text: str) -> list[str]:
    """The commands of sgpu that a text tells to type."""
    return [words for words in re.findall(r"`(sgpu [^`]+)`", text) if "NAME" not in words]


def failing(sgpu: Shell, command: str, name: str = "train") -> None:
    sgpu.write("run.yaml", FAILS.format(name=name, command=json.dumps(command)))


@pytest.mark.parametrize("where", [[], ["-t", "dev"]], ids=["base", "target"])
def test_a_failed_run_is_named_in_the_command_that_shows_its_output(
    sgpu: Shell, tmp_path: Path, where: list[str]
) -> None:
    failing(sgpu, "echo words of $RANK; exit 3")
    shell = Shell(tmp_path, sgpu.environ)
    applied = shell.exits(5, "apply", "-y", *where, os.fspath(sgpu.folder / "run.yaml"))
    (command,) = printed(applied.err)
    assert "'train#1'" in command
    shown = shell.here(*shlex.split(command)[1:])
    assert (shown.code, shown.err) == (0, "")
    assert "[train 1] words of 1" in shown.out
    waited = shell.here("wait", "train", *where, "--project", os.fspath(sgpu.folder))
    assert printed(waited.err) == [command]


def test_detached_runs_are_followed_by_the_command_that_is_printed(sgpu: Shell) -> None:
    failing(sgpu, "true")
    (command,) = printed(sgpu.here("apply", "-y", "--detach", "-t", "dev").err)
    sgpu.done(*shlex.split(command)[1:])


def test_the_last_words_of_the_rank_that_failed_are_shown_if_its_output_was_not(
    sgpu: Shell,
) -> None:
    failing(sgpu, "if [ $RANK = 1 ]; then seq 1 40; echo no data >&2; exit 3; fi; sleep 60")
    applied = sgpu.exits(5, "apply", "-y")
    told = applied.err.partition("the last lines of rank 1:\n")[2].splitlines()
    assert len(told[:-2]) == 10
    assert {"    no data", "    40"} <= set(told)
    assert "    30" not in told
    assert "the last lines of rank 1:" in sgpu.here("wait", "train").err
    again = sgpu.here("apply", "-y", "--retry-failed", "--rank", "all")
    assert "[train 1] no data" in again.out
    assert "the last lines of rank" not in again.err


def test_globs_leave_out_what_was_destroyed(sgpu: Shell) -> None:
    failing(sgpu, "exit 3", "old")
    sgpu.exits(5, "apply", "-y")
    sgpu.done("destroy", "-y")
    for command in ("wait", "cancel"):
        refused = sgpu.exits(1, command, "*")
        assert "no run matches `*` but destroyed ones" in refused.err
        assert "such as `old`" in refused.err
    sgpu.exits(5, "wait", "old")
    failing(sgpu, "true", "new")
    sgpu.done("apply", "-y")
    assert "old" not in sgpu.done("wait", "*").err
    assert "old" not in sgpu.here("cancel", "*").err


def test_hints_name_the_target_and_the_file_of_the_command_that_prints_them(sgpu: Shell) -> None:
    sgpu.write("other.yaml", FAILS.format(name="train", command="'exit 3'"))
    first = sgpu.here("apply", "-y", "-t", "dev", "other.yaml")
    assert printed(first.err) == ["sgpu logs 'train#1' --rank all -t dev"]

    again = sgpu.here("apply", "-y", "-t", "dev", "other.yaml")
    (command,) = printed(again.err)
    assert command == "sgpu apply other.yaml --retry-failed -t dev"
    assert f"`{command}`" in sgpu.error("apply", "-y", "-t", "dev", "other.yaml")["hint"]
    sgpu.exits(5, *shlex.split(command)[1:], "-y")

    below = sgpu.folder / "elsewhere"
    below.mkdir()
    from_there = sgpu.here("apply", "-y", "-t", "dev", "../other.yaml", cwd=below)
    (command,) = printed(from_there.err)
    assert command == "sgpu apply ../other.yaml --retry-failed -t dev"
    sgpu.exits(5, *shlex.split(command)[1:], "-y", cwd=below)


def test_hints_of_a_plan_are_complete_as_text_as_json_and_as_events(sgpu: Shell) -> None:
    failing(sgpu, "sleep 600")
    sgpu.done("apply", "-y", "--detach", "-t", "dev")
    failing(sgpu, "sleep 600", "other")
    with (sgpu.folder / "run.yaml").open("a") as file:
        file.write("renamed_from: train\n")
    (check,) = sgpu.checks("-t", "dev", "--json-into", "events.jsonl", id="active_run")
    assert printed(check["hint"]) == ["sgpu wait 'train#1' -t dev"]
    events = (sgpu.folder / "events.jsonl").read_text().splitlines()
    assert check["hint"] in [json.loads(line).get("diagnostic", {}).get("hint") for line in events]
    assert check["hint"] in sgpu.here("plan", "-t", "dev").err
    sgpu.done("cancel", "train", "-t", "dev")


def test_a_command_about_a_cell_whose_key_holds_a_backtick_is_completed_at_its_end(
    sgpu: Shell,
) -> None:
    failing(sgpu, "exit 3")
    axis = "\nmatrix: {word: ['a`b']}\nenv: {variables: {WORD: '${matrix.word}'}}\n"
    sgpu.write("run.yaml", (sgpu.folder / "run.yaml").read_text() + axis)
    assert sgpu.exits(5, "apply", "-y", "-t", "dev").err.rstrip().endswith("--rank all -t dev`")


def test_the_retry_of_a_chosen_run_chooses_it_again(sgpu: Shell) -> None:
    fields = "gpus: 1, type: CPU, mlflow: {enabled: false}, grace: 500ms"
    runs = "".join(
        f"  {name}: {{command: {json.dumps(command)}, {fields}}}\n"
        for name, command in {"fails": "exit 3", "other": "exit 3"}.items()
    )
    sgpu.write("sgpu.yml", f"project: {{name: p}}\ntargets: {{dev: {{}}}}\nruns:\n{runs}")
    sgpu.exits(5, "apply", "-y", "fails", "other", "-t", "dev")
    again = sgpu.here("apply", "-y", "fails", "-t", "dev")
    assert printed(again.err) == ["sgpu apply --retry-failed --select fails -t dev"]
    words = shlex.split(printed(again.err)[0])[1:]
    retried = sgpu.data(*words, "-y")["attempts"]
    assert retried == ["fails#2"]


def test_one_entrypoint_written_in_two_ways_is_one_spec(sgpu: Shell) -> None:
    sgpu.write("train.py", "def main():\n    return 1\n")
    text = "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\nentrypoint: "
    sgpu.write("run.yaml", text + "train.py:main\n")
    sgpu.done("apply", "-y")
    for other in ("./train.py:main", ".//train.py:main"):
        sgpu.write("run.yaml", f"{text}{other}\n")
        (change,) = sgpu.data("plan")["changes"]
        assert (change["action"], change["reason"]) == ("no_op", "up_to_date")


LATER = """\
import os, sys, time
from sgpu_decl.cli.main import main

clock = time.monotonic
time.monotonic = lambda: clock() + (3600 if os.path.exists("later") else 0)
sys.exit(main(["apply", "-y"]))
"""


@pytest.mark.expensive
def test_cancelling_what_is_followed_ends_a_supervisor_that_does_not_answer(
    sgpu: Shell, at_terminal: AtTerminal
) -> None:
    """The clock of `apply` jumps ahead, so that nobody waits for the 30 s of silence."""
    failing(sgpu, "echo $((40 + 2)); sleep 600")
    program = sgpu.write("later.py", LATER)
    with at_terminal(program=[sys.executable, str(program)]) as terminal:
        terminal.until("42")
        folder = sgpu.folder / ".sgpu/default/runs/train/1"
        known = json.loads((folder / "identity.json").read_text())
        os.kill(known["pid"], signal.SIGSTOP)
        try:
            terminal.type("\x03")
            terminal.until("press again to cancel")
            terminal.type("\x03")
            terminal.until("cancelling")
            for _ in range(3):  # it has looked again, after it asked the run to stop
                terminal.until("running")
            sgpu.write("later", "")
            terminal.until("does not answer")
            assert terminal.ended() == 130
        finally:
            for pid, started in [
                (known["pid"], known["start_time"]), *carriers(known["token"])
            ]:  # fmt: skip
                send_signal(pid, started, signal.SIGKILL)
    (run,) = sgpu.data("status")["runs"]
    assert run["state"] == "cancelled"


def test_runs_are_destroyed_by_their_names_whichever_file_they_are_of(sgpu: Shell) -> None:
    sgpu.write("run.yaml", FAILS.format(name="train", command="'true'"))
    sgpu.write("other.yaml", FAILS.format(name="eval", command="'true'"))
    sgpu.done("apply", "-y")
    sgpu.done("apply", "-y", "other.yaml")

    for words in (["destroy", "run.yaml", "eval", "-y"], ["plan", "run.yaml", "--select", "eval"]):
        assert "another one declares `run.eval`" in sgpu.exits(64, *words).err
    sgpu.done("destroy", "eval", "-y")

    listed = sgpu.data("state", "list")["resources"]
    assert {item["address"]: item["gone"] for item in listed} == {
        "run.eval": True,
        "run.train": False,
    }
    assert "did you mean `train`?" in sgpu.exits(1, "destroy", "trian", "-y").err
    sgpu.exits(64, "destroy", "run.yaml", "other.yaml", "-y")


def test_a_name_may_hold_a_backtick(sgpu: Shell) -> None:
    sgpu.write(
        "run.yaml",
        FAILS.format(name="a", command="[echo, '${matrix.mode}']")
        + 'matrix: {mode: ["it`s", b]}\n',
    )
    sgpu.done("apply", "-y", "-t", "dev")
    sgpu.done("destroy", "-y", "-t", "dev")
    for words in ("status", "status a", "show a", "results a", "wait a", "logs a", "plan"):
        assert "internal" not in sgpu.done(*words.split(), "-t", "dev").err


def test_words_of_ranks_are_shown_as_they_are(sgpu: Shell) -> None:
    words = "see `sgpu apply don't` please, or `sgpu status`"
    sgpu.write("train.py", f"raise RuntimeError({words!r})\n")
    sgpu.write(
        "run.yaml",
        "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py\nmlflow: {enabled: false}\n"
        "targets: {dev: {}}\n",
    )
    assert words in sgpu.exits(5, "apply", "-y", "-t", "dev").err
    for command in ("status", "show"):
        assert words in sgpu.done(command, "a", "-t", "dev").out
    assert words in sgpu.exits(5, "wait", "a", "-t", "dev").err
