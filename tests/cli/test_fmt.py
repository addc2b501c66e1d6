"""`sgpu fmt` as a user calls it. `tests/text/test_yaml_format.py` has the format."""

import io
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.docs.pages import PAGES, ROOT, blocks, title

WILD = "name:   train\ngpus: 8\ntype: A10\nentrypoint: train.py   # the script\n"
TIDY = "name: train\ngpus: 8\ntype: A10\nentrypoint: train.py # the script\n"


@pytest.fixture
def sgpu(tmp_path: Path) -> Shell:
    (tmp_path / "run.yaml").write_text(WILD)
    return Shell(tmp_path, dict(os.environ))


def test_without_a_path_the_files_of_the_folder_are_written(sgpu: Shell) -> None:
    first = sgpu.here("fmt")
    assert (first.code, first.out) == (0, "formatted run.yaml\n")
    assert (sgpu.folder / "run.yaml").read_text() == TIDY
    second = sgpu.here("fmt")
    assert (second.code, second.out) == (0, "")
    assert second.err == "0 changed, 1 unchanged\n"


def test_check_writes_nothing_and_ends_with_1(sgpu: Shell) -> None:
    checked = sgpu.here("fmt", "--check")
    assert (checked.code, checked.out) == (1, "would format run.yaml\n")
    assert (sgpu.folder / "run.yaml").read_text() == WILD
    (sgpu.folder / "run.yaml").write_text(TIDY)
    sgpu.done("fmt", "--check")


def test_the_diff_is_one_that_patch_takes(sgpu: Shell) -> None:
    diff = sgpu.done("fmt", "--diff")
    assert (sgpu.folder / "run.yaml").read_text() == WILD
    subprocess.run(["git", "apply", "-"], input=diff.out, text=True, cwd=sgpu.folder, check=True)
    assert (sgpu.folder / "run.yaml").read_text() == TIDY
    sgpu.done("fmt", "--diff", "--check")


def test_standard_input_is_printed_in_the_format(
    sgpu: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options, code, out in (
        ([], 0, TIDY),
        (["--check"], 1, ""),
        (["-o", "json"], 0, None),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WILD.encode())))
        answer = sgpu.here("fmt", "-", *options)
        assert answer.code == code
        if out is None:
            (file,) = answer.json["data"]["files"]
            assert file == {"file": "standard input", "changes": True, "text": TIDY}
        else:
            assert answer.out == out
    assert (sgpu.folder / "run.yaml").read_text() == WILD
    sgpu.exits(64, "fmt", "-", "run.yaml")


def test_of_a_folder_only_files_of_sgpu_are_written(sgpu: Shell) -> None:
    others = {
        "ci.yml": "on:   push\n",
        ".github/run.yaml": WILD,
        ".venv/pyvenv.cfg": "",
        "env/pyvenv.cfg": "",
        "env/run.yaml": WILD,
        "lines.txt": WILD,
    }
    ours = {
        "sub/train.yml": WILD,
        "sub/sgpu.yml": "project:   {name: sub}\ninclude:\n- parts/*.yml\n",
        "sub/parts/a.yml": "runs:\n    a:\n        gpus: 1\n        type: CPU\n",
    }
    for name, text in {**others, **ours}.items():
        (sgpu.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (sgpu.folder / name).write_text(text)
    (sgpu.folder / "linked.yaml").symlink_to(sgpu.folder / "env/run.yaml")
    answer = sgpu.here("fmt")
    assert set(answer.out.splitlines()) == {f"formatted {name}" for name in ("run.yaml", *ours)}
    assert {name: (sgpu.folder / name).read_text() for name in others} == others


def test_a_file_keeps_its_mode_and_its_link(sgpu: Shell) -> None:
    file = sgpu.folder / "run.yaml"
    file.chmod(0o644)
    (sgpu.folder / "link.yaml").symlink_to("run.yaml")
    assert sgpu.here("fmt", "link.yaml").out == "formatted link.yaml\n"
    assert (sgpu.folder / "link.yaml").is_symlink()
    assert file.read_text() == TIDY
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_file_that_is_not_yaml_is_named_and_the_others_are_written(sgpu: Shell) -> None:
    (sgpu.folder / "bad.yaml").write_text("a: [1\nb: 2\n")
    answer = sgpu.exits(1, "fmt", "bad.yaml", "run.yaml")
    assert answer.out == "formatted run.yaml\n"
    assert "bad.yaml:2:2" in answer.err
    assert "error[invalid_input]: `bad.yaml` cannot be formatted" in answer.err
    assert (sgpu.folder / "bad.yaml").read_text() == "a: [1\nb: 2\n"
    answer = sgpu.exits(1, "fmt", "bad.yaml", "run.yaml", "-o", "json")
    assert [file["file"] for file in answer.json["data"]["files"]] == ["bad.yaml", "run.yaml"]
    assert answer.json["error"]["diagnostics"][0]["code"] == "yaml_syntax"


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("absent.yaml", 1, "`absent.yaml` does not exist"),
        ("empty", 1, "there is no run or project file in `empty` or below"),
        ("run.plan", 1, "`run.plan` is a saved plan"),
        ("fifo.yaml", 1, "it is a FIFO"),
    ],
)
def test_what_cannot_be_formatted_is_refused(
    sgpu: Shell, path: str, code: int, message: str
) -> None:
    (sgpu.folder / "empty").mkdir()
    (sgpu.folder / "run.plan").write_text('{"applyable": true, "format_version": "1.0"}')
    os.mkfifo(sgpu.folder / "fifo.yaml")
    answer = sgpu.here("fmt", path)
    assert answer.code == code
    assert message in answer.err
    assert "hint: " in answer.err


def test_what_init_writes_is_in_the_format(sgpu: Shell) -> None:
    for folder, options in (("one", []), ("many", ["--project"])):
        sgpu.done("init", folder, *options)
        sgpu.done("fmt", "--check", folder)


def test_the_examples_are_in_the_format(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    answer = Shell(tmp_path, dict(os.environ)).here("fmt", "--check")
    assert answer.out == ""
    assert re.search(r"0 would change, ([8-9]|\d\d) unchanged", answer.err)


def test_the_yaml_of_the_pages_is_in_the_format() -> None:
    from sgpu_decl.text.yaml_format import formatted

    for page in PAGES:
        for language, text in blocks(page):
            if language.startswith("yaml") and title(page) != "docs/reference/fields.md":
                assert formatted(text, title(page))[0] == text, text
