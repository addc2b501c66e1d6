"""Folders that the code writes into and that ranks lack: empty ones, and those of ignored files."""

import pytest

from tests.cli.conftest import Shell
from tests.support import FUNCTION_RUN as RUN

HINT = "create it in the program: `os.makedirs('{}', exist_ok=True)`; or write to the folder"


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", RUN)
    sgpu.write(".gitignore", "*.pt\nruns/\n")
    sgpu.write("ckpt/old.pt", "")
    sgpu.write("runs/a", "")
    sgpu.write("kept/a.py", "")
    (sgpu.folder / "logs").mkdir()
    return sgpu


@pytest.mark.parametrize(
    ("source", "folder", "reason"),
    [
        ("open('logs/a.txt', 'w')", "logs", "the folder is empty"),
        ("open('logs/a.txt', mode='a')", "logs", "the folder is empty"),
        ("Path('logs', 'a').write_text('x')", "logs", "the folder is empty"),
        ("Path('logs/a').open('w')", "logs", "the folder is empty"),
        ("torch.save(x, 'ckpt/a.pt')", "ckpt", "such as `ckpt/old.pt` by line 1 of `.gitignore`"),
        ("D = 'runs'\nf.to_csv(os.path.join(D, 'a'))", "runs", "line 2 of `.gitignore` (`runs/`)"),
    ],
)
def test_a_folder_that_ranks_lack_is_named_where_the_source_writes_into_it(
    project: Shell, source: str, folder: str, reason: str
) -> None:
    project.write("train.py", f"{source}\ndef main(): ...\n")
    shown = project.here("plan").out
    assert shown.count("warning[folder_left_out]") == 1
    assert f"and ranks have no folder `{folder}`: " in shown
    assert reason in shown
    assert HINT.format(folder) in shown


@pytest.mark.parametrize(
    "source",
    [
        "os.makedirs('logs', exist_ok=True)\nopen('logs/a.txt', 'w')",
        "Path('logs').mkdir(exist_ok=True)\nopen('logs/a.txt', 'w')",
        "open('kept/a.txt', 'w')",
        "open('a.txt', 'w')",
        "open('nowhere/a.txt', 'w')",
        "open(name + '/a.txt', 'w')",
    ],
)
def test_a_folder_that_the_program_creates_or_that_travels_is_not_named(
    project: Shell, source: str
) -> None:
    project.write("train.py", f"{source}\ndef main(): ...\n")
    assert "folder_left_out" not in project.here("plan").out


@pytest.mark.parametrize(
    ("path", "reason"),
    [("ckpt/a.txt", "all that it holds is left out, such as `ckpt/old.pt` by line 1"),
     ("logs/a.txt", "the folder is empty"), ("runs/b", "excluded by line 2 of `.gitignore`")],
)  # fmt: skip
def test_the_failure_names_the_folder_its_rule_and_the_way_out(
    project: Shell, path: str, reason: str
) -> None:
    project.write(
        "train.py", f"import os\ndef main(): open(os.path.join(*{path.split('/')}), 'w')\n"
    )
    failed = project("apply", "-y")
    folder = path.partition("/")[0]
    assert failed.code != 0
    assert f"`{folder}` is in the project: {reason}" in failed.err
    assert HINT.format(folder) in failed.err
