"""What users do wrong: a clear error, quickly, with the right exit code and nothing changed."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support import COMMAND_RUN as RUN


def refused(sgpu: Shell, *arguments: str, code: int, anew: bool = False) -> str:
    """Run a command in both forms; the message of both. They need processes of their own (`anew`)
    where the answer depends on how Python was started."""
    run = sgpu if anew else sgpu.here
    before = _cpu_seconds()
    text = run(*arguments)
    took = _cpu_seconds() - before
    assert text.code == code, text.err
    assert "Traceback" not in text.err
    assert "internal error" not in text.err
    structured = run(*arguments, "-o", "json")
    assert structured.code == code
    error = structured.json["error"]
    assert f"error[{error['code']}]: " in text.err
    assert error["message"]
    assert took < 5, "half a second on an idle machine with compiled bytecode"
    return f"{text.err}\n{error['message']} {error['hint']}"


def _cpu_seconds() -> float:
    """Processor time of this process and of ended children: unlike the clock, it hardly depends on
    the neighbours."""
    used = os.times()
    return sum(used[:4])


@pytest.mark.parametrize("command", ["plan", "validate", "apply"])
def test_a_folder_in_place_of_a_file(sgpu: Shell, command: str) -> None:
    (sgpu.folder / "dir").mkdir()
    message = refused(sgpu, command, "./dir", code=1)
    assert "`dir` is a folder" in message
    assert "`dir/run.yaml`" in message
    assert sgpu.error(command, "./dir")["code"] == "unreadable"


@pytest.mark.parametrize("command", ["plan", "validate", "apply"])
def test_a_file_that_is_not_there(sgpu: Shell, command: str) -> None:
    assert "`absent.yaml`" in refused(sgpu, command, "absent.yaml", code=1)


def test_no_file_at_all_points_to_init(sgpu: Shell) -> None:
    assert "sgpu init" in refused(sgpu, "plan", code=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN).chmod(0)
    assert "permission" in refused(sgpu, "plan", code=1)


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("run.yaml", 50 * 2**20, "more than 1,048,576 bytes, the limit of a run file"),
        ("run.yaml", 2 * 2**20, "more than 1,048,576 bytes, the limit of a run file"),
        ("sgpu.yml", 50 * 2**20, "more than 10,485,760 bytes, the limit of a project file"),
    ],
)
def test_a_file_that_is_too_large_has_one_code_whoever_notices(
    sgpu: Shell, name: str, size: int, words: str
) -> None:
    with (sgpu.folder / name).open("wb") as file:
        file.truncate(size)
    assert f"error[file_too_large]: the file has {words}\n  --> {name}:1:1\n" in refused(
        sgpu, "plan", code=1
    )
    error = sgpu.error("validate")
    assert error["code"] == "invalid_input"
    assert [found["code"] for found in error["diagnostics"]] == ["file_too_large"]


def test_several_mistakes_are_shown_at_once_with_their_places(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: a\ngpu: 2\ntype: CPU\ncommand: [x]\nentrypoint: a.py\n")
    message = refused(sgpu, "validate", code=1)
    assert "run.yaml:2:1" in message
    assert "did you mean `gpus`?" in message
    found = sgpu.error("validate")["diagnostics"]
    assert len(found) >= 2
    assert {"code", "severity", "summary", "file", "line", "column", "hint", "related"} == set(
        found[0]
    )


def test_a_state_folder_that_cannot_be_made(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write(".sgpu", "a file")
    for command in (["apply", "-y"], ["plan"], ["status"], ["state", "list"], ["gc"], ["destroy"]):
        message = refused(sgpu, *command, code=1)
        assert f"`{sgpu.folder}/.sgpu` is not a folder" in message
        assert "move it away" in message
    assert sgpu.error("status")["code"] == "state_unreachable"
    assert (sgpu.folder / ".sgpu").read_text() == "a file"


def test_a_state_folder_that_may_not_be_written(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    (sgpu.folder / ".sgpu").symlink_to("/sys")  # where even root makes no folder
    message = refused(sgpu, "apply", "-y", code=1)
    assert re.search(rf"E\w+ on mkdir of `{sgpu.folder}/.sgpu/default` \(", message)
    assert f"make `{sgpu.folder}/.sgpu` readable and writable for you" in message
    assert sgpu.error("apply", "-y")["code"] == "state_unreachable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_state_folder_that_may_not_be_looked_into(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "targets: {dev: {}}\n")
    folder = sgpu.folder / ".sgpu"
    folder.mkdir(mode=0)
    commands = (["status"], ["plan"], ["apply", "-y"], ["destroy", "-y"], ["status", "-t", "dev"])
    try:
        for command in commands:
            message = refused(sgpu, *command, code=1)
            assert "cannot be used: permission denied" in message
            assert f"make `{folder}` readable and writable for you" in message
            assert sgpu.error(*command)["code"] == "state_unreachable"
    finally:
        folder.rmdir()


def test_an_address_that_matches_nothing_names_the_nearest(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.done("apply", "-y")
    for command in ("logs", "results", "wait", "cancel", "show"):
        assert "did you mean `hello`?" in refused(sgpu, command, "helo", code=1)


@pytest.mark.parametrize("option", ["--select", "--exclude", "--rerun"])
def test_a_selection_that_matches_nothing_names_the_nearest(sgpu: Shell, option: str) -> None:
    sgpu.write("run.yaml", RUN)
    assert "hello" in refused(sgpu, "plan", option, "helo", code=1)


def test_a_selection_that_is_like_nothing_names_what_there_is(sgpu: Shell) -> None:
    runs = "".join(f"  r{n}: {{gpus: 1, type: CPU, command: [x]}}\n" for n in range(9))
    sgpu.write("run.yaml", RUN)
    sgpu.write("sgpu.yml", "project: {name: p}\nruns:\n" + runs)
    assert "hint: the only run here is `hello`\n" in refused(
        sgpu, "plan", "run.yaml", "--select", "zzz", code=1
    )
    message = refused(sgpu, "plan", "--select", "zzz", code=1)
    assert "hint: the runs here are `r0`, `r1`, `r2`, `r3`, `r4` and 4 more\n" in message


def test_a_rerun_that_is_left_out_of_the_plan(sgpu: Shell) -> None:
    runs = "".join(f"  {name}: {{gpus: 1, type: CPU, command: [x]}}\n" for name in ("cmd", "grid"))
    sgpu.write("sgpu.yml", "project: {name: p}\nruns:\n" + runs)
    for left_out in (("--select", "cmd"), ("--exclude", "grid")):
        message = refused(sgpu, "plan", "--rerun", "grid", *left_out, code=64)
        assert ": `--rerun grid` names nothing of this plan\n" in message
    sgpu.done("plan", "--rerun", "*", "--select", "cmd")


def test_a_name_without_any_run_yet(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    assert "`hello`" in refused(sgpu, "logs", "hello", code=1)
    assert sgpu.here("status").out == "no runs yet\n"


def test_a_name_that_was_applied_with_another_target(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "targets: {old: {}, new: {}}\n")
    sgpu.done("apply", "-y", "-t", "old")
    for more in ((), ("-t", "new")):
        hint = "hint: something was applied with `-t old`: look there\n"
        assert hint in refused(sgpu, "logs", "hello", *more, code=1)
        assert sgpu.here("status", *more).err == hint
    sgpu.done("apply", "-y")
    assert "with `-t default` and with `-t old`" in sgpu.here("status", "-t", "new").err


def test_a_plan_that_was_cut_off(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.done("plan", "--out", "p")
    whole = (sgpu.folder / "p").read_text()
    sgpu.write("p", whole[: len(whole) // 2])
    message = refused(sgpu, "apply", "p", code=1)
    assert "error[truncated_plan]: `p` is cut off before its end\n  --> p:1:" in message
    assert message.count("hint: ") == 1
    for command in ("apply", "show"):
        error = sgpu.error(command, "p")
        assert (error["code"], error["diagnostics"][0]["file"]) == ("invalid_input", "p")
    assert not (sgpu.folder / ".sgpu").exists()


def test_a_plan_that_is_not_json_shows_where(sgpu: Shell) -> None:
    sgpu.write("p", '{"a": 1,\n "b": x}')
    assert "error[bad_plan]: `p` is not JSON\n  --> p:2:7\n" in refused(sgpu, "apply", "p", code=1)


def test_a_plan_of_a_newer_format(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.done("plan", "--out", "p")
    whole = (sgpu.folder / "p").read_text()
    sgpu.write("p", re.sub('"format_version": ?"1.[0-9]+"', '"format_version":"9.0"', whole))
    assert "9.0" in refused(sgpu, "apply", "p", code=1)


def test_json_that_is_no_plan(sgpu: Shell) -> None:
    sgpu.write("p", '{"a": 1}')
    assert "`p` is not a plan: it has no `format_version`\n  --> p:1:1\n" in refused(
        sgpu, "apply", "p", code=1
    )


def test_a_plan_that_cannot_be_saved(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    assert "`no/such/folder/p`" in refused(sgpu, "plan", "--out", "no/such/folder/p", code=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", RUN),
        ("run.json", '{"name": "hello", "gpus": 1, "type": "CPU", "command": ["true"]}'),
        ("notes.txt", "all that I know"),
        ("package.json", '{"name": "web"}'),
    ],
)
def test_saving_a_plan_overwrites_no_file_that_is_none(sgpu: Shell, name: str, text: str) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write(name, text)
    file = name if name.startswith("run.") else "run.yaml"
    message = refused(sgpu, "plan", file, "--out", name, code=1)
    assert (
        f"error[exists]: `{name}` exists and is no saved plan: it is not overwritten\n" in message
    )
    assert "give `--out` another name" in message
    assert sgpu.error("plan", file, "--out", name)["code"] == "exists"
    assert (sgpu.folder / name).read_text() == text


def test_saving_a_plan_refuses_a_taken_name_before_it_reads_anything(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: [")
    sgpu.write("notes.txt", "all that I know")
    assert "is no saved plan" in refused(sgpu, "plan", "--out", "notes.txt", code=1)
    assert "is no saved plan" in refused(sgpu, "plan", "--out", ".", code=1)


def test_saving_a_plan_replaces_an_older_plan_and_an_empty_file(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("p", "")
    sgpu.done("plan", "--out", "p")
    first = (sgpu.folder / "p").read_text()
    sgpu.write("run.yaml", RUN.replace("true", "false"))
    sgpu.done("plan", "--out", "p")
    assert (sgpu.folder / "p").read_text() != first
    sgpu.done("show", "p")


@pytest.mark.parametrize("command", [["plan"], ["validate"], ["destroy", "-y"]], ids=" ".join)
def test_a_saved_plan_in_place_of_a_run_file(sgpu: Shell, command: list[str]) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.done("plan", "--out", "a.plan")
    message = refused(sgpu, *command, "a.plan", code=1)
    assert ": `a.plan` is a saved plan, not a run or project file\n" in message
    assert "hint: carry it out with `sgpu apply a.plan`, or look at it with " in message
    error = sgpu.error(*command, "a.plan")
    assert (error["code"], error["diagnostics"]) == ("invalid_input", [])


def test_an_empty_file_may_have_been_either(sgpu: Shell) -> None:
    sgpu.write("empty.plan", "")
    message = refused(sgpu, "apply", "empty.plan", code=1)
    assert (
        "error[empty_file]: the file is empty\n  --> empty.plan:1:1\nhint: write a run" in message
    )
    assert "save that again" in message
    assert "init" not in message


@pytest.mark.parametrize("command", ["status", "plan", "apply", "validate", "destroy"])
def test_a_project_folder_that_is_not_there(sgpu: Shell, command: str) -> None:
    message = refused(sgpu, command, "--project", "nowhere", code=1)
    assert "project folder `nowhere` does not exist" in message
    assert sgpu.error(command, "--project", "nowhere")["code"] == "not_found"


@pytest.mark.parametrize(
    ("folder", "environ", "encoding", "hint"),
    [
        (b"caf\xe9", {}, "utf-8", "rename the folder or file"),
        (
            "café".encode(),
            {"LC_ALL": "C", "PYTHONUTF8": "0"},
            "ascii",
            "use a UTF-8 locale: `export LC_ALL=C.UTF-8`",
        ),
    ],
    ids=["not UTF-8", "not ASCII where that is the encoding"],
)
def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_made(
    sgpu: Shell, folder: bytes, environ: dict[str, str], encoding: str, hint: str
) -> None:
    bad = Path(os.fsdecode(os.fsencode(sgpu.folder) + b"/" + folder))
    bad.mkdir()
    (bad / "run.yaml").write_text(RUN)
    here = type(sgpu)(bad, {**sgpu.environ, **environ})
    named = type(sgpu)(sgpu.folder, {**sgpu.environ, **environ})
    for command in (["plan"], ["apply", "-y"], ["status"], ["destroy", "-y"]):
        message = refused(here, *command, code=1, anew=True)
        assert f"its name is no text in the encoding `{encoding}`" in message
        assert hint in message
        assert here(*command, "-o", "json").json["error"]["code"] == "state_unreachable"
    shown = refused(named, "apply", "-y", os.fsdecode(folder + b"/run.yaml"), code=1, anew=True)
    assert "its name is no text" in shown
    assert [path.name for path in bad.iterdir()] == ["run.yaml"]
    assert [path.name for path in sgpu.folder.iterdir()] == [bad.name]


@pytest.mark.parametrize(
    "command", [["status"], ["plan"], ["plan", "run.yaml", "--out", "p"], ["apply", "-y"],
                ["validate"], ["destroy", "-y"], ["init"], ["logs", "x"]],
    ids=" ".join,
)  # fmt: skip
def test_a_current_folder_that_was_deleted(sgpu: Shell, command: list[str]) -> None:
    gone = sgpu.folder / "gone"
    asked = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, "-m", "sgpu_decl"]
    for form in ([], ["-o", "json"]):
        gone.mkdir()
        done = subprocess.run(
            [*asked, *command, *form], cwd=gone, env=sgpu.environ, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == {
        "code": "not_found",
        "message": "the current folder does not exist any more",
        "hint": "change to a folder that exists",
        "retryable": False,
        "diagnostics": [],
    }
    assert not list(Path(sgpu.environ["XDG_STATE_HOME"]).rglob("sgpu-crash-*"))


def test_an_address_that_is_none(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.done("apply", "-y")
    refused(sgpu, "state", "mv", "run.hello", "not an address", code=1)
    refused(sgpu, "state", "show", "run.nothing", code=1)
    refused(sgpu, "state", "unlock", "0", code=1)


def test_terminal_codes_in_a_file_name_do_not_reach_the_terminal(sgpu: Shell) -> None:
    name = "a\x1b[2Jb.yaml"
    assert "\x1b[2J" not in sgpu.here("plan", name).err
    assert Path(name).name == name


def test_an_error_of_the_plan_shows_the_line_it_is_about(sgpu: Shell) -> None:
    sgpu.write("sub/run.yaml", RUN.replace("command: ['true']", "entrypoint: train.py:main"))
    message = refused(sgpu, "plan", "sub/run.yaml", code=1)
    assert "error[entrypoint_missing]: the entrypoint `train.py` does not exist\n" in message
    assert (
        "  --> sub/run.yaml:4:13\n   |\n 4 | entrypoint: train.py:main\n   |             ^\n"
    ) in message
    assert sgpu.here("apply", "sub/run.yaml", "-y").err in message
    found = sgpu.error("plan", "sub/run.yaml")
    assert (found["code"], found["hint"]) == ("plan_has_errors", found["diagnostics"][0]["hint"])


def test_a_syntax_error_of_the_users_code_shows_its_line(sgpu: Shell) -> None:
    sgpu.write("sub/run.yaml", RUN.replace("command: ['true']", "entrypoint: train.py:main"))
    sgpu.write("sub/train.py", "import os\ndef main(:\n")
    message = refused(sgpu, "plan", "sub/run.yaml", code=1)
    assert "  --> sub/train.py:2:10\n   |\n 2 | def main(:\n   |          ^\n" in message


@pytest.mark.parametrize(
    "command",
    [
        ["status"], ["logs", "x"], ["results", "x"], ["wait", "x"], ["cancel", "x"], ["show", "x"],
        ["gc"], ["state", "list"], ["state", "pull"], ["state", "rm", "x"], ["destroy", "-y"],
        ["doctor"],
    ],
)  # fmt: skip
def test_an_unknown_target_is_told_with_the_known_ones(sgpu: Shell, command: list[str]) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\ntargets: {prod: {}, dev: {}}\nruns: {}\n")
    message = refused(sgpu, *command, "-t", "prd", code=1)
    assert "there is no target `prd`" in message
    assert "did you mean `prod`?" in message
    assert not (sgpu.folder / ".sgpu").exists()


def test_a_target_is_known_by_the_state_or_by_a_file_above(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "targets: {old: {}, new: {}}\n")
    sgpu.done("apply", "-y", "-t", "old")
    sgpu.write("run.yaml", RUN + "targets: {new: {}}\n")
    assert "hello#1" in sgpu.here("status", "-t", "old").out
    assert sgpu.here("status", "-t", "new").out == "no runs yet\n"
    (sgpu.folder / "deep").mkdir()
    assert sgpu.here("status", "-t", "new", cwd=sgpu.folder / "deep").out == "no runs yet\n"
    error = sgpu.error("status", "-t", "unheard")
    assert error["code"] == "unknown_target"
    assert error["hint"] == "`run.yaml` declares `new`; `.sgpu/` knows `old`"
    sgpu.write("run.yaml", "targets: [")
    assert "run.yaml:2:1" in refused(sgpu, "status", "-t", "unheard", code=1)
    assert "hello#1" in sgpu.here("status", "-t", "old").out


def test_a_target_where_nothing_declares_any(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    assert "leave out `-t`" in refused(sgpu, "status", "-t", "prod", code=1)
    for name in ("../x", "", "x" * 101):
        message = refused(sgpu, "status", "-t", name, code=1)
        assert (
            f"error[unknown_target]: `{name}` is not a valid name for a target\nhint: " in message
        )


NEAR = """name: hello
gpus: 1
type: CPU
description: ${vars.lr}
mlflow: {enabled: false, experiment: "${ var.lr }"}
env: {variables: {A: "${{ env.HOME }}", B: "${metric.x}", C: "${bar.x}"}}
command: echo '${vars.lr}'
variables: {lr: 1}
"""


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_a_near_miss_of_a_reference_is_a_warning_where_no_shell_reads_it(
    sgpu: Shell, command: str
) -> None:
    sgpu.write("run.yaml", NEAR)
    answer = sgpu.done(command)
    told = answer.err + answer.out
    assert told.count("warning[near_reference]") == 3
    meant = {"vars.lr": "var.lr", " var.lr ": "var.lr", "{ env.HOME }": "env.HOME"}
    for given, right in meant.items():
        assert f"`${{{given}}}` is not a reference, so it is not filled in" in told
        assert f"did you mean `${{{right}}}`?" in told


@pytest.mark.parametrize(
    "args", ["{lr: '${vars.lr}'}", "['--lr', '${vars.lr}']", "{a: {b: [x, '${Var.lr}/x']}}"]
)
def test_a_near_miss_of_a_reference_in_arguments_is_an_error(sgpu: Shell, args: str) -> None:
    sgpu.write("run.yaml", RUN.replace("command: ['true']", f"entrypoint: a.py:f\nargs: {args}"))
    message = refused(sgpu, "validate", code=1)
    assert "error[near_reference]" in message
    assert "run.yaml:5:" in message
    assert "did you mean `${var.lr}`?" in message


@pytest.mark.parametrize("version", ["3.{}", "{}.1", "3.1.{}"])
def test_a_version_of_python_with_very_many_digits_is_none(sgpu: Shell, version: str) -> None:
    sgpu.write("run.yaml", f"{RUN}env: {{python: '{version.format('9' * 5000)}'}}\n")
    assert sgpu.refusal("plan") == (1, "plan_has_errors")


def test_a_near_miss_in_a_project_is_told_by_the_field_of_its_run(sgpu: Shell) -> None:
    run = "{gpus: 1, type: CPU, command: 'echo 1', tags: {a: '${matrx.a}'}}"
    sgpu.write("sgpu.yml", f"runs:\n  a: {run}\n")
    (found,) = sgpu.data("validate")["diagnostics"]
    assert (found["code"], found["severity"], found["line"]) == ("near_reference", "warning", 2)
    run = run.replace("command: 'echo 1'", "entrypoint: a.py:f, args: {a: '${vars.a}'}")
    sgpu.write("sgpu.yml", f"runs:\n  a: {run}\n")
    found = sgpu.error("validate")["diagnostics"]
    assert [item["severity"] for item in found] == ["error", "warning"]


def test_a_malformed_tracking_uri_where_a_saved_plan_is_applied_launches_nothing(
    sgpu: Shell,
) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: 'true'\n")
    sgpu.done("plan", "--out", "a.plan")
    there = replace(sgpu, environ={**sgpu.environ, "MLFLOW_TRACKING_URI": "http://[server"})

    assert there.refusal("apply", "a.plan") == (1, "bad_tracking_uri")
    assert sgpu.data("status")["runs"] == []


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("tags: {'': x}", "empty_value", "a name in `tags` is empty"),
        ("tags: {mlflow.runName: x}", "reserved_tag", "use `mlflow.run_name`"),
        ("tags: {sgpu.address: x}", "reserved_tag", "does not begin with `sgpu.`"),
        ("mlflow: {experiment: ''}", "empty_value", "`mlflow.experiment` is empty"),
        ("mlflow: {run_name: ''}", "empty_value", "`mlflow.run_name` is empty"),
        ("mlflow: {tracking_uri: ''}", "empty_value", "`mlflow.tracking_uri` is empty"),
        ("on_finish: {failure: [nobody]}", "bad_mail", "such as `me@example.com`"),
    ],
)
def test_what_would_be_ignored_of_tracking_and_mail(
    sgpu: Shell, line: str, code: str, said: str
) -> None:
    sgpu.write("run.yaml", f"name: a\ngpus: 1\ntype: CPU\ncommand: 'true'\n{line}\n")
    message = refused(sgpu, "validate", code=1)
    assert f"error[{code}]" in message
    assert said in message


SHELLED = """name: hello
gpus: 1
type: CPU
entrypoint: a.py
args: [--data, $HOME/data, "--out=${OUT:-/tmp}", ~/x, --rank, "$RANK", "$HF_TOKEN"]
env: {variables: {PATH: "$HOME/bin:$PATH"}}
"""


def test_what_a_shell_would_fill_in_is_a_warning_where_no_shell_reads_it(sgpu: Shell) -> None:
    sgpu.write("a.py", "")
    sgpu.write("run.yaml", SHELLED)
    found = sgpu.data("validate")["diagnostics"]
    told = [(item["summary"], item["hint"]) for item in found if item["code"] == "shell_reference"]
    where = "for the value that it has where sgpu is called"
    text = "from the environment in your program, or write a text `command`"
    assert told == [
        ("no shell reads this: `$HOME` stays as it is", f"write `${{env.HOME}}` {where}"),
        ("no shell reads this: `${OUT:-/tmp}` stays as it is", f"write `${{env.OUT}}` {where}"),
        ("no shell reads this: `~/` stays as it is", f"write `${{env.HOME}}` {where}"),
        ("no shell reads this: `$RANK` stays as it is", f"read `RANK` {text}"),
        (
            "no shell reads this: `$HF_TOKEN` stays as it is",
            "give it by `env.secrets`, as `env:HF_TOKEN`, and read it in your program",
        ),
        ("no shell reads this: `$HOME` stays as it is", f"write `${{env.HOME}}` {where}"),
    ]
    assert {item["severity"] for item in found} == {"warning"}
    plan = sgpu.done("plan")
    assert "warning[shell_reference]: run.hello: no shell reads this: `$HOME`" in plan.out


@pytest.mark.parametrize(
    "lines",
    [
        "command: 'ls $HOME ~/x'",
        "command: [bash, -c, '$TOOL/run']",
        "command: [/usr/bin/ssh, node, '$HOME/run']",
        "command: [awk, '{print $NF}', 'x$']",
        "command: [perl, -e, 'print $ENV{HOME}']",
        "{entrypoint: a.py, args: ['Dear $NAME, hi', '^a$', '$x', 'US$5', '${now:%Y}', 'a~b']}",
        "{entrypoint: a.py, args: ['dir=${oc.env:HOME}', '$name', '$E=mc^2$', '~(a)']}",
        "{description: $HOME, command: ['true'], env: {dependencies: ['a @ https://${TOK}@b/c']}}",
    ],
)
def test_a_dollar_that_is_no_reference_of_a_shell_is_left_alone(sgpu: Shell, lines: str) -> None:
    sgpu.write("a.py", "")
    if lines.startswith("{"):
        sgpu.write("run.yaml", "{name: hello, gpus: 1, type: CPU, " + lines[1:])
    else:
        sgpu.write("run.yaml", f"name: hello\ngpus: 1\ntype: CPU\n{lines}\n")
    assert "shell_reference" not in sgpu.here("validate", "-o", "json").out


@pytest.mark.parametrize(
    "name",
    ["DB_PASSWORD", "PGPASSWORD", "HF_TOKEN", "CLIENT_SECRET", "WANDB_API_KEY", "OPENAI_APIKEY",
     "aws_secret_access_key", "API_KEY_2", "TOKEN"],
)  # fmt: skip
def test_a_secret_is_not_taken_as_a_plain_value(sgpu: Shell, name: str) -> None:
    sgpu.write("run.yaml", RUN + f"env: {{variables: {{A: 'x ${{env.{name}}}'}}}}\n")
    sgpu.environ[name] = "hunter2-the-value"
    answer = sgpu.exits(1, "plan")
    assert "error[secret_reference]" in answer.err
    assert f"write `env: {{secrets: {{{name}: env:{name}}}}}`" in answer.err
    assert "run.yaml:6:22" in answer.err
    assert "hunter2" not in answer.err + answer.out


@pytest.mark.parametrize(
    "name",
    ["MONKEY", "KEYBOARD", "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "SSH_PUBLIC_KEY", "SORT_KEY",
     "EOS_TOKEN", "TOKEN_COUNT", "SSH_KEY_FILE", "SECRET_SCOPE", "TURKEY", "PASSWORD_FILE"],
)  # fmt: skip
def test_what_only_sounds_like_a_secret_is_a_value_as_any(sgpu: Shell, name: str) -> None:
    sgpu.write("run.yaml", RUN + f"env: {{variables: {{A: '${{env.{name}}}'}}}}\n")
    sgpu.environ[name] = "1"
    sgpu.done("validate")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class main: pass", "a class"),
        ("main = {'epochs': 5}", "a mapping"),
        ("import json as main", "a module"),
        ("from settings import main", "a number"),
    ],
)
def test_an_entrypoint_that_is_no_function(sgpu: Shell, source: str, words: str) -> None:
    sgpu.write("settings.py", "main = 5\n")
    sgpu.write("train.py", f"{source}\n")
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\n")
    message = refused(sgpu, "plan", code=1)
    assert f"error[entrypoint_not_function]: `main` in `train.py` is {words}, not a function" in (
        message
    )
    assert "--> run.yaml:4:" in message


def test_a_rank_to_follow_that_no_run_has_is_refused_before_the_launch(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    message = refused(sgpu, "apply", "-y", "--rank", "1", code=1)
    assert "there is no rank 1: the ranks are 0 to 0" in message
    assert not (sgpu.folder / ".sgpu").exists()


def test_a_selection_that_leaves_nothing(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    for chosen in (["--select", "hello"], []):
        message = refused(sgpu, "apply", "-y", *chosen, "--exclude", "hel*", code=64)
        assert "`--exclude` leaves out all that is chosen" in message


@pytest.mark.parametrize("option", ["--set", "--var"])
def test_an_option_given_twice_with_two_values_is_refused(sgpu: Shell, option: str) -> None:
    sgpu.write("run.yaml", RUN)
    twice = (option, "gpus=1", option, "gpus=2")
    assert "`gpus` is given twice, with two values" in refused(sgpu, "plan", *twice, code=64)
    sgpu.done("plan", "--set", "gpus=1", "--set", "gpus=1")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("variables.x=1", "`--var NAME=VALUE`"),
        ("targets.x.gpus=2", "a target with `-t NAME`"),
    ],
)
def test_set_names_the_option_to_use_instead(sgpu: Shell, path: str, words: str) -> None:
    sgpu.write("run.yaml", RUN)
    assert words in refused(sgpu, "plan", "--set", path, code=1)


def test_durations_of_options_are_written_as_those_of_the_file(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    for text in ("90", "90s", "1h30m", "2w", "500ms"):
        assert sgpu.here("gc", "--older-than", text).code == 0, text
        sgpu.write("run.yaml", f"{RUN}timeout: {text}\n")
        assert sgpu.here("validate").code == 0, text
    for text in ("", "h", "1x", "1h30", "-1s", "1h-30m", "h1", "1.5h", "1 h 30 m"):
        assert "is not a duration" in refused(sgpu, "gc", "--older-than", text, code=64), text
        sgpu.write("run.yaml", f"{RUN}timeout: '{text}'\n")
        assert "must be a duration" in refused(sgpu, "validate", code=1), text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gc", "--keep-last", "x"), "`x` is not a whole number of at least 0"),
        (("apply", "--parallelism", "0"), "`0` is not a whole number of at least 1"),
        (("logs", "hello", "--restart", "1.5"), "`1.5` is not a whole number of at least 0"),
        (("explain", "run.gpu"), "did you mean `run.gpus`?"),
        (("init", "run.yaml"), "`run.yaml` is a file, not a folder"),
        (("show", "environment.hello"), "no environment matches `environment.hello`"),
        (("state", "mv", "hello", "run.hello"), "`run.hello` has that address already"),
    ],
)
def test_refusals_name_the_cause(sgpu: Shell, arguments: tuple[str, ...], words: str) -> None:
    sgpu.write("run.yaml", RUN)
    if arguments[0] in ("show", "state"):
        sgpu.done("apply", "-y")
    refusal = sgpu.here(*arguments)
    assert refusal.code in (1, 64)
    assert words in refusal.err


def test_commands_that_are_printed_can_be_run(sgpu: Shell) -> None:
    assert "  sgpu plan 'my first run/run.yaml'\n" in sgpu.here("init", "my first run").out
    sgpu.write("run.yaml", RUN)
    assert "`sgpu apply 'my plan'`" in sgpu.here("plan", "--out", "my plan").err


def test_what_an_active_run_has_not_left_yet(sgpu: Shell) -> None:
    waits = "command: [python3, -c, 'import time; time.sleep(300)']\ngrace: 500ms\n"
    sgpu.write("run.yaml", RUN.replace("command: ['true']\n", waits))
    sgpu.done("apply", "-y", "--detach")
    assert "`hello#1` has returned a value yet; its state is " in sgpu.here("results", "hello").err
    assert "its ranks may still write" in sgpu.here("fetch", "hello").err
    assert sgpu.here("cancel", "hello").err.splitlines()[-1] == "hello#1 cancelled"
    assert sgpu.here("cancel", "hello").err == "hello#1 had ended already: cancelled\n"
    assert "returned a value; its state is cancelled" in sgpu.here("results", "hello").err


def test_a_path_to_ignore_that_no_run_has_is_a_warning(sgpu: Shell) -> None:
    paths = "[enviroment.variables, env.variables.SEED, args.anything]"
    sgpu.write("run.yaml", RUN + f"lifecycle: {{ignore_changes: {paths}}}\n")
    (check,) = sgpu.checks(id="ignore_unused")
    assert (check["severity"], check["place"]["file"]) == ("warning", "run.yaml")
    assert "names `enviroment.variables`" in check["summary"]


TARGET_RUN = RUN + "targets: {prod: {}}\nvariables: {v: 1}\n"


@pytest.mark.parametrize(
    "options",
    [("-t", "prd"), ("--set", "gpus=many"), ("--set", "gpuz=1"), ("--var", "w=2")],
    ids=" ".join,
)
def test_a_wrong_option_is_not_called_a_wrong_file(sgpu: Shell, options: tuple[str, str]) -> None:
    sgpu.write("run.yaml", TARGET_RUN)
    for command in ("plan", "validate"):
        refused = sgpu.exits(1, command, *options)
        assert "error[invalid_input]: the options of this command do not fit `run.yaml`" in (
            refused.err
        )
    sgpu.write("run.yaml", TARGET_RUN + "gpu: 1\n")
    assert "`run.yaml` is not valid" in sgpu.here("plan", *options).err


@pytest.mark.parametrize("command", ["plan", "validate", "apply"])
def test_a_python_file_is_called_one(sgpu: Shell, command: str) -> None:
    sgpu.write("h.py", "x = 1\n")
    refused = sgpu.exits(1, command, "h.py")
    assert refused.err.startswith(
        "error[invalid_input]: `h.py` is a Python file, not a run or project file\nhint: "
    )
    assert "sgpu init" in refused.err
    assert "@distributed" in refused.err


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("plan", "-t"), "sgpu plan"),
        (("state", "mv", "--project"), "sgpu state mv"),
        (("--nope",), "sgpu"),
    ],
)
def test_an_option_without_its_value_points_at_the_help_of_its_command(
    sgpu: Shell, arguments: tuple[str, ...], path: str
) -> None:
    assert sgpu.here(*arguments).err.endswith(f"hint: see `{path} --help`\n")


def test_a_missing_entrypoint_outside_of_the_root_is_one_finding(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: h\ngpus: 1\ntype: CPU\nentrypoint: ../h.py:main\n")
    refused = sgpu.here("validate")
    assert "error[entrypoint_missing]" in refused.err
    assert "entrypoint_unpinned" not in refused.err


def test_nothing_to_do_is_said_once(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu.here("destroy", "-y").out.count("No changes.") == 1


def test_a_saved_plan_with_the_name_of_a_run_is_shown_and_the_run_named(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.done("apply", "-y")
    sgpu.done("plan", "--rerun", "hello", "--out", "hello")
    shown = sgpu.here("show", "hello")
    assert "\nPlan: 1 to create" in shown.out
    assert shown.err == (
        "note: this is the saved plan `hello`; see the run with `sgpu show run.hello`\n"
    )
    assert "succeeded" in sgpu.here("show", "run.hello").out
    (sgpu.folder / "hello").rename(sgpu.folder / "other")
    assert sgpu.here("show", "other").err == ""
