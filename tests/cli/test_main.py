"""Exit codes and the form of errors, without a project."""

import json
from pathlib import Path

import pytest

from sgpu_decl.cli.commands import COMMANDS, STATE_COMMANDS
from sgpu_decl.cli.error_exit import as_sgpu_error, wants_json
from sgpu_decl.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["plna"], "did you mean `plan`?"),
        (["state", "lst"], "did you mean `list`?"),
        (["plan", "--frobnicate"], "no such option"),
        (["plan", "--set", "x"], "not of the form `name=value`"),
        (["status", "--var", "x=1"], "`sgpu status` reads no run file or project file"),
        (["logs", "a", "--set", "x=1"], "`sgpu logs` reads no run file or project file"),
        (["wait"], "missing argument"),
        (["plan", "--on-active", "maybe"], "maybe"),
        (["apply", "--parallelism", "0"], "parallelism"),
        (["apply", "--rank", "first"], "`first` is not a rank"),
        (["gc", "--older-than", "soon"], "`soon` is not a duration"),
        (["wait", "x", "--timeout", "-1"], "`-1` is not a duration"),
        (["logs", "x", "-f", "-o", "text", "--rank", "-2"], "is not a rank"),
    ],
)
def test_wrong_usage_is_64_with_a_way_on(
    arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 64
    shown = capsys.readouterr()
    assert shown.out == ""
    assert cause.lower() in shown.err.lower()
    hint = shown.err.partition("\nhint: ")[2]
    assert "see `sgpu" in hint or hint == "write `90s`, `6h` or `1h30m`\n"


def test_wrong_usage_under_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--frobnicate", "-o", "json"]) == 64
    shown = capsys.readouterr()
    assert shown.err == ""
    error = json.loads(shown.out)["error"]
    assert error["code"] == "usage"
    assert error["diagnostics"] == []


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["plan", "-o", "json"], True),
        (["plan", "-ojson"], True),
        (["plan", "--output=json"], True),
        (["plan", "--output", "json"], True),
        (["plan", "-o", "text"], False),
        (["plan", "--", "-o", "json"], False),
        (["plan", "--out", "json"], False),
        (["plan", "-o"], False),
    ],
)
def test_json_is_recognised_where_it_could_not_be_parsed(arguments: list[str], asked: bool) -> None:
    assert wants_json(arguments) is asked


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    long = capsys.readouterr().out
    assert f"sgpu {name}" in long
    assert main([name, "-h"]) == 0
    assert capsys.readouterr().out == long


@pytest.mark.parametrize("name", STATE_COMMANDS)
def test_every_state_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", name, "--help"]) == 0
    assert f"sgpu state {name}" in capsys.readouterr().out


def test_version_in_three_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["version"]) == 0
    assert main(["version", "-o", "json"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == second
    assert json.loads(third)["data"]["version"] == first.split()[1]


def test_an_unforeseen_error_names_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    error = as_sgpu_error(ZeroDivisionError("by zero"), ())
    assert error.exit_code == 1
    assert error.message == "internal error: ZeroDivisionError: by zero"
    (report,) = (tmp_path / "sgpu" / "crashes").iterdir()
    assert str(report) in str(error.hint)
    assert "ZeroDivisionError: by zero" in report.read_text()


def test_an_error_of_the_system_names_the_file_and_is_no_crash() -> None:
    error = as_sgpu_error(PermissionError(13, "Permission denied", "/x"), ())
    assert error.message == "the operating system refused: EACCES of `/x` (permission denied)"
    assert error.exit_code == 1


def test_an_interruption_is_130() -> None:
    assert as_sgpu_error(KeyboardInterrupt(), ()).exit_code == 130


def test_init_writes_a_run_its_schema_and_a_script_and_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "my job")]) == 0
    assert "sgpu plan" in capsys.readouterr().out
    text = (tmp_path / "my job" / "run.yaml").read_text()
    assert "name: my-job\n" in text
    schema = text.partition("$schema=")[2].partition("\n")[0]
    assert json.loads((tmp_path / "my job" / schema).read_text())["$id"] == "urn:sgpu:schema:run.v1"
    (tmp_path / "my job" / "run.yaml").unlink()
    (tmp_path / "my job" / "train.py").write_text("mine")
    assert main(["init", str(tmp_path / "my job")]) == 1
    assert "nothing was written" in capsys.readouterr().err
    assert (tmp_path / "my job" / "train.py").read_text() == "mine"
    assert not (tmp_path / "my job" / "run.yaml").exists()


def test_init_refuses_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--name", "a b", "/nowhere"]) == 64
    assert "`a b` is not a name for a run" in capsys.readouterr().err
