"""What users do wrong: a clear error, quickly, with the right exit code and nothing changed."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

RUN = "name: hello\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"


def refused(sgpu, *arguments: str, code: int, anew: bool = False) -> str:
    """Run a command in both forms; the message of both. The second one needs a process of its own
    (`anew`) where the answer depends on how Python was started."""
    before = _cpu_seconds()
    text = sgpu(*arguments)
    took = _cpu_seconds() - before
    assert text.code == code, text.err
    assert "error: " in text.err
    assert "Traceback" not in text.err
    assert "internal error" not in text.err
    structured = (sgpu if anew else sgpu.here)(*arguments, "-o", "json")
    assert structured.code == code
    error = structured.json["error"]
    assert error["message"]
    assert took < 1.5, "half a second on an idle machine with compiled bytecode"
    return f"{text.err}\n{error['message']} {error['hint']}"


def _cpu_seconds() -> float:
    """Processor time of ended children: unlike the clock, it hardly depends on the neighbours."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("command", ["plan", "validate", "apply"])
def test_a_folder_in_place_of_a_file(sgpu, command: str) -> None:
    (sgpu.folder / "dir").mkdir()
    message = refused(sgpu, command, "dir", code=1)
    assert "`dir` is a folder" in message
    assert "`dir/run.yaml`" in message
    assert sgpu.here(command, "dir", "-o", "json").json["error"]["code"] == "unreadable"


@pytest.mark.parametrize("command", ["plan", "validate", "apply"])
def test_a_file_that_is_not_there(sgpu, command: str) -> None:
    assert "`absent.yaml`" in refused(sgpu, command, "absent.yaml", code=1)


def test_no_file_at_all_points_to_init(sgpu) -> None:
    assert "sgpu init" in refused(sgpu, "plan", code=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(sgpu) -> None:
    sgpu.write("run.yaml", RUN).chmod(0)
    assert "permission" in refused(sgpu, "plan", code=1)


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("run.yaml", 50 * 2**20, "more than 1,048,576 bytes, the limit of a run file"),
        ("run.yaml", 2 * 2**20, "more than 1,048,576 bytes, the limit of a run file"),
        ("sgpu.yml", 50 * 2**20, "more than 10,485,760 bytes, the limit of a project file"),
    ],
)
def test_a_file_that_is_too_large_has_one_code_whoever_notices(
    sgpu, name: str, size: int, words: str
) -> None:
    with (sgpu.folder / name).open("wb") as file:
        file.truncate(size)
    assert f"error[file_too_large]: the file has {words}\n  --> {name}:1:1\n" in refused(
        sgpu, "plan", code=1
    )
    error = sgpu.here("validate", "-o", "json").json["error"]
    assert error["code"] == "invalid_input"
    assert [found["code"] for found in error["diagnostics"]] == ["file_too_large"]


def test_several_mistakes_are_shown_at_once_with_their_places(sgpu) -> None:
    sgpu.write("run.yaml", "name: a\ngpu: 2\ntype: CPU\ncommand: [x]\nentrypoint: a.py\n")
    message = refused(sgpu, "validate", code=1)
    assert "run.yaml:2:1" in message
    assert "did you mean `gpus`?" in message
    found = sgpu.here("validate", "-o", "json").json["error"]["diagnostics"]
    assert len(found) >= 2
    assert {"code", "severity", "summary", "file", "line", "column", "hint", "related"} == set(
        found[0]
    )


def test_a_state_folder_that_cannot_be_made(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write(".sgpu", "a file")
    for command in (["apply", "-y"], ["plan"], ["status"], ["state", "list"], ["gc"], ["destroy"]):
        message = refused(sgpu, *command, code=1)
        assert f"`{sgpu.folder}/.sgpu` is not a folder" in message
        assert "move it away" in message
    assert sgpu.here("status", "-o", "json").json["error"]["code"] == "state_unreachable"
    assert (sgpu.folder / ".sgpu").read_text() == "a file"


def test_a_state_folder_that_may_not_be_written(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    (sgpu.folder / ".sgpu").symlink_to("/sys")  # where even root makes no folder
    message = refused(sgpu, "apply", "-y", code=1)
    assert f"error: `{sgpu.folder}/.sgpu/default` cannot be used: " in message
    assert f"make `{sgpu.folder}/.sgpu` readable and writable for you" in message
    assert sgpu.here("apply", "-y", "-o", "json").json["error"]["code"] == "state_unreachable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_state_folder_that_may_not_be_looked_into(sgpu) -> None:
    sgpu.write("run.yaml", RUN + "targets: {dev: {}}\n")
    folder = sgpu.folder / ".sgpu"
    folder.mkdir(mode=0)
    commands = (["status"], ["plan"], ["apply", "-y"], ["destroy", "-y"], ["status", "-t", "dev"])
    try:
        for command in commands:
            message = refused(sgpu, *command, code=1)
            assert "cannot be used: permission denied" in message
            assert f"make `{folder}` readable and writable for you" in message
            error = sgpu.here(*command, "-o", "json").json["error"]
            assert error["code"] == "state_unreachable"
    finally:
        folder.rmdir()


def test_an_address_that_matches_nothing_names_the_nearest(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("apply", "-y").code == 0
    for command in ("logs", "results", "wait", "cancel", "show"):
        assert "did you mean `hello`?" in refused(sgpu, command, "helo", code=1)


@pytest.mark.parametrize("option", ["--select", "--exclude", "--rerun"])
def test_a_selection_that_matches_nothing_names_the_nearest(sgpu, option: str) -> None:
    sgpu.write("run.yaml", RUN)
    assert "hello" in refused(sgpu, "plan", option, "helo", code=1)


def test_a_selection_that_is_like_nothing_names_what_there_is(sgpu) -> None:
    runs = "".join(f"  r{n}: {{gpus: 1, type: CPU, command: [x]}}\n" for n in range(9))
    sgpu.write("run.yaml", RUN)
    sgpu.write("sgpu.yml", "project: {name: p}\nruns:\n" + runs)
    assert "hint: the only run here is `hello`\n" in refused(
        sgpu, "plan", "run.yaml", "--select", "zzz", code=1
    )
    message = refused(sgpu, "plan", "--select", "zzz", code=1)
    assert "hint: the runs here are `r0`, `r1`, `r2`, `r3`, `r4` and 4 more\n" in message


def test_a_rerun_that_is_left_out_of_the_plan(sgpu) -> None:
    runs = "".join(f"  {name}: {{gpus: 1, type: CPU, command: [x]}}\n" for name in ("cmd", "grid"))
    sgpu.write("sgpu.yml", "project: {name: p}\nruns:\n" + runs)
    for left_out in (("--select", "cmd"), ("--exclude", "grid")):
        message = refused(sgpu, "plan", "--rerun", "grid", *left_out, code=64)
        assert "error: `--rerun grid` names nothing of this plan\n" in message
    assert sgpu("plan", "--rerun", "*", "--select", "cmd").code == 0


def test_a_name_without_any_run_yet(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    assert "`hello`" in refused(sgpu, "logs", "hello", code=1)
    assert sgpu("status").out == "no runs yet\n"


def test_a_name_that_was_applied_with_another_target(sgpu) -> None:
    sgpu.write("run.yaml", RUN + "targets: {old: {}, new: {}}\n")
    assert sgpu("apply", "-y", "-t", "old").code == 0
    for more in ((), ("-t", "new")):
        hint = "hint: something was applied with `-t old`: look there\n"
        assert hint in refused(sgpu, "logs", "hello", *more, code=1)
        assert sgpu("status", *more).err == hint
    assert sgpu("apply", "-y").code == 0
    assert "without `-t` and with `-t old`" in sgpu("status", "-t", "new").err


def test_a_plan_that_was_cut_off(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("plan", "--out", "p").code == 0
    whole = (sgpu.folder / "p").read_text()
    sgpu.write("p", whole[: len(whole) // 2])
    message = refused(sgpu, "apply", "p", code=1)
    assert "error[truncated_plan]: `p` is cut off before its end\n  --> p:1:" in message
    assert message.count("hint: ") == 1
    for command in ("apply", "show"):
        error = sgpu.here(command, "p", "-o", "json").json["error"]
        assert (error["code"], error["diagnostics"][0]["file"]) == ("invalid_input", "p")
    assert not (sgpu.folder / ".sgpu").exists()


def test_a_plan_that_is_not_json_shows_where(sgpu) -> None:
    sgpu.write("p", '{"a": 1,\n "b": x}')
    assert "error[bad_plan]: `p` is not JSON\n  --> p:2:7\n" in refused(sgpu, "apply", "p", code=1)


def test_a_plan_of_a_newer_format(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("plan", "--out", "p").code == 0
    whole = (sgpu.folder / "p").read_text()
    sgpu.write("p", whole.replace('"format_version": "1.0"', '"format_version": "9.0"').replace(
        '"format_version":"1.0"', '"format_version":"9.0"'))  # fmt: skip
    assert "9.0" in refused(sgpu, "apply", "p", code=1)


def test_json_that_is_no_plan(sgpu) -> None:
    sgpu.write("p", '{"a": 1}')
    assert "`p` is not a plan: it has no `format_version`\n  --> p:1:1\n" in refused(
        sgpu, "apply", "p", code=1
    )


def test_a_plan_that_cannot_be_saved(sgpu) -> None:
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
def test_saving_a_plan_overwrites_no_file_that_is_none(sgpu, name: str, text: str) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write(name, text)
    file = name if name.startswith("run.") else "run.yaml"
    message = refused(sgpu, "plan", file, "--out", name, code=1)
    assert f"error: `{name}` exists and is no saved plan: it is not overwritten\n" in message
    assert "give `--out` another name" in message
    assert sgpu.here("plan", file, "--out", name, "-o", "json").json["error"]["code"] == "exists"
    assert (sgpu.folder / name).read_text() == text


def test_saving_a_plan_refuses_a_taken_name_before_it_reads_anything(sgpu) -> None:
    sgpu.write("run.yaml", "name: [")
    sgpu.write("notes.txt", "all that I know")
    assert "is no saved plan" in refused(sgpu, "plan", "--out", "notes.txt", code=1)
    assert "is no saved plan" in refused(sgpu, "plan", "--out", ".", code=1)


def test_saving_a_plan_replaces_an_older_plan_and_an_empty_file(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("p", "")
    assert sgpu("plan", "--out", "p").code == 0
    first = (sgpu.folder / "p").read_text()
    sgpu.write("run.yaml", RUN.replace("true", "false"))
    assert sgpu("plan", "--out", "p").code == 0
    assert (sgpu.folder / "p").read_text() != first
    assert sgpu("show", "p").code == 0


@pytest.mark.parametrize("command", [["plan"], ["validate"], ["destroy", "-y"]], ids=" ".join)
def test_a_saved_plan_in_place_of_a_run_file(sgpu, command: list[str]) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("plan", "--out", "a.plan").code == 0
    message = refused(sgpu, *command, "a.plan", code=1)
    assert "error: `a.plan` is a saved plan, not a run or project file\n" in message
    assert "hint: carry it out with `sgpu apply a.plan`, or look at it with " in message
    error = sgpu.here(*command, "a.plan", "-o", "json").json["error"]
    assert (error["code"], error["diagnostics"]) == ("invalid_input", [])


def test_an_empty_file_may_have_been_either(sgpu) -> None:
    sgpu.write("empty.plan", "")
    message = refused(sgpu, "apply", "empty.plan", code=1)
    assert (
        "error[empty_file]: the file is empty\n  --> empty.plan:1:1\nhint: write a run" in message
    )
    assert "save that again" in message
    assert "init" not in message


@pytest.mark.parametrize("command", ["status", "plan", "apply", "validate", "destroy"])
def test_a_project_folder_that_is_not_there(sgpu, command: str) -> None:
    message = refused(sgpu, command, "--project", "nowhere", code=1)
    assert "project folder `nowhere` does not exist" in message
    error = sgpu.here(command, "--project", "nowhere", "-o", "json").json["error"]
    assert error["code"] == "not_found"


@pytest.mark.parametrize(
    ("folder", "environ", "encoding", "hint"),
    [
        (b"caf\xe9", {}, "utf-8", "rename the folder or file"),
        (
            "café".encode(),
            {"LC_ALL": "C", "PYTHONUTF8": "0"},
            "ascii",
            "take a locale of UTF-8: `export LC_ALL=C.UTF-8`",
        ),
    ],
    ids=["not UTF-8", "not ASCII where that is the encoding"],
)
def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_made(
    sgpu, folder: bytes, environ: dict[str, str], encoding: str, hint: str
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
    assert [it.name for it in bad.iterdir()] == ["run.yaml"]
    assert [it.name for it in sgpu.folder.iterdir()] == [bad.name]


@pytest.mark.parametrize(
    "command", [["status"], ["plan"], ["plan", "run.yaml", "--out", "p"], ["apply", "-y"],
                ["validate"], ["destroy", "-y"], ["init"], ["logs", "x"]],
    ids=" ".join,
)  # fmt: skip
def test_a_current_folder_that_was_deleted(sgpu, command: list[str]) -> None:
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
        "hint": "change to one that does",
        "retryable": False,
        "diagnostics": [],
    }
    assert not list(Path(sgpu.environ["XDG_STATE_HOME"]).rglob("sgpu-crash-*"))


def test_an_address_that_is_none(sgpu) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("apply", "-y").code == 0
    refused(sgpu, "state", "mv", "run.hello", "not an address", code=1)
    refused(sgpu, "state", "show", "run.nothing", code=1)
    refused(sgpu, "state", "unlock", "0", code=1)


def test_terminal_codes_in_a_file_name_do_not_reach_the_terminal(sgpu) -> None:
    name = "a\x1b[2Jb.yaml"
    assert "\x1b[2J" not in sgpu("plan", name).err
    assert Path(name).name == name


def test_an_error_of_the_plan_shows_the_line_it_is_about(sgpu) -> None:
    sgpu.write("sub/run.yaml", RUN.replace("command: ['true']", "entrypoint: train.py:main"))
    message = refused(sgpu, "plan", "sub/run.yaml", code=1)
    assert "error[entrypoint_missing]: the entrypoint `train.py` does not exist\n" in message
    assert (
        "  --> sub/run.yaml:4:13\n   |\n 4 | entrypoint: train.py:main\n   |             ^\n"
    ) in message
    assert sgpu("apply", "sub/run.yaml", "-y").err in message
    found = sgpu.here("plan", "sub/run.yaml", "-o", "json").json["error"]
    assert (found["code"], found["hint"]) == ("plan_has_errors", found["diagnostics"][0]["hint"])


def test_a_syntax_error_of_the_users_code_shows_its_line(sgpu) -> None:
    sgpu.write("sub/run.yaml", RUN.replace("command: ['true']", "entrypoint: train.py:main"))
    sgpu.write("sub/train.py", "import os\ndef main(:\n")
    message = refused(sgpu, "plan", "sub/run.yaml", code=1)
    assert "  --> sub/train.py:2:10\n   |\n 2 | def main(:\n   |          ^\n" in message


@pytest.mark.parametrize(
    "command",
    [
        ["status"], ["logs", "x"], ["results", "x"], ["wait", "x"], ["cancel", "x"], ["show", "x"],
        ["gc"], ["state", "list"], ["state", "pull"], ["state", "rm", "x"], ["destroy", "-y"],
    ],
)  # fmt: skip
def test_an_unknown_target_is_told_with_the_known_ones(sgpu, command: list[str]) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\ntargets: {prod: {}, dev: {}}\nruns: {}\n")
    message = refused(sgpu, *command, "-t", "prd", code=1)
    assert "there is no target `prd`" in message
    assert "did you mean `prod`?" in message
    assert not (sgpu.folder / ".sgpu").exists()


def test_a_target_is_known_by_the_state_or_by_a_file_above(sgpu) -> None:
    sgpu.write("run.yaml", RUN + "targets: {old: {}, new: {}}\n")
    assert sgpu("apply", "-y", "-t", "old").code == 0
    sgpu.write("run.yaml", RUN + "targets: {new: {}}\n")
    assert "hello#1" in sgpu("status", "-t", "old").out
    assert sgpu("status", "-t", "new").out == "no runs yet\n"
    (sgpu.folder / "deep").mkdir()
    assert sgpu("status", "-t", "new", cwd=sgpu.folder / "deep").out == "no runs yet\n"
    error = sgpu.here("status", "-t", "unheard", "-o", "json").json["error"]
    assert error["code"] == "unknown_target"
    assert error["hint"] == "`run.yaml` declares `new`; `.sgpu/` knows `old`"
    sgpu.write("run.yaml", "targets: [")
    assert "run.yaml:2:1" in refused(sgpu, "status", "-t", "unheard", code=1)
    assert "hello#1" in sgpu("status", "-t", "old").out


def test_a_target_where_nothing_declares_any(sgpu) -> None:
    assert "leave `-t` out" in refused(sgpu, "status", "-t", "prod", code=1)
    for name in ("../x", "", "default", "x" * 101):
        message = refused(sgpu, "status", "-t", name, code=1)
        assert f"error: `{name}` is no name of a target\nhint: " in message
