"""`pip install` where a run would do it by itself."""

import json
from pathlib import Path

import pytest

from sgpu_decl.code.code_packages import installs_in_code, installs_in_command
from sgpu_decl.code.sources import sources
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place

AT = Place("run.yaml", 4, 10)


def in_command(command: str | list[str], root: Path = Path("/nowhere")) -> list[str]:
    """What each finding quotes."""
    found = installs_in_command(command, root, {"command": AT}.get)
    assert all(item.code == "install_in_run" for item in found)
    return [item.summary.split("`")[1] for item in found]


@pytest.mark.parametrize(
    ("command", "quoted"),
    [
        ("pip install peft", "pip install"),
        ("set -e\npip3.11 -q install -r r.txt\ntorchrun x.py", "pip3.11 -q install"),
        ("cd x && uv pip install --system peft", "uv pip install"),
        ("X=1 python -m pip install \\\n  peft; python train.py", "X=1 python -m pip install"),
        ("(conda install -y peft)", "conda install"),
        ("if true; then sudo /usr/bin/pip install x; fi", "then sudo /usr/bin/pip install"),
        ("bash -c 'pip install x && python y.py'", "pip install"),
        ("uv add peft", "uv add"),
        (["python", "-m", "pip", "install", "peft"], "python -m pip install"),
        (["bash", "-c", "pip install peft\npython train.py"], "pip install"),
    ],
)
def test_commands_that_install(command: str | list[str], quoted: str) -> None:
    assert in_command(command) == [quoted]


@pytest.mark.parametrize(
    "command",
    [
        "python train.py  # pip install peft",
        "echo pip install peft",
        "echo 'pip install peft'",
        "pip list",
        "pip --version",
        "python install.py",
        "npm install x",
        "python -m train install",
        "echo 'a quote that goes on\npip is not called here'",
        "",
        "   ",
        ["echo", "pip install x"],
        ["bash", "-c"],
        ["python", "-m"],
        ["uv"],
    ],
)
def test_commands_that_install_nothing(command: str | list[str]) -> None:
    assert in_command(command) == []


def test_the_finding_says_why_at_its_place_and_quotes_no_address() -> None:
    text = "pip install --index-url https://me:hunter2@example.invalid/simple peft"
    (found,) = installs_in_command(text, Path("/nowhere"), {"command": AT}.get)
    assert (found.severity, found.place) == (Severity.WARNING, AT)
    assert found.summary == (
        "`pip install` in `command` is invisible to this diff, and repeated on every node and retry"
    )
    assert "hunter2" not in str(found)


def test_cells_of_a_notebook_that_the_command_runs(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "%pip install not-this"},
        {"cell_type": "code", "source": ["import x\n", "%pip install -q peft\n"]},
        {"cell_type": "code", "source": "!conda install y\nprint('%pip install z')"},
    ]
    (tmp_path / "nb.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "bad.ipynb").write_text('{"cells": [{}]}')
    assert in_command("papermill nb.ipynb out.ipynb", tmp_path) == [
        "pip install",
        "conda install",
    ]
    assert in_command("papermill bad.ipynb", tmp_path) == []


def test_calls_of_the_code_and_of_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import helpers, subprocess, sys\n"
        "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'peft'])\n"
        "subprocess.run(('nvidia-smi',))\n"
        "subprocess.run(words)\n"
        "model.run('not a command')\n"
        "print('pip install peft')\n"
    )
    (tmp_path / "helpers.py").write_text("from os import system\n\nsystem('pip install x')\n")
    (tmp_path / "unused.py").write_text("import os\nos.system('pip install x')\n")
    found = installs_in_code(sources(tmp_path, "train.py:main"))
    assert [str(item.place) for item in found] == ["train.py:2:1", "helpers.py:3:1"]
    assert found[0].summary.startswith("`… -m pip install` in `train.py`")


def test_a_notebook_that_was_saved_as_source(tmp_path: Path) -> None:
    text = "# Databricks notebook source\n# MAGIC %pip install -U peft\n# %pip install x\n"
    (tmp_path / "nb.py").write_text(text)
    (found,) = installs_in_code(sources(tmp_path, "nb.py"))
    assert str(found.place) == "nb.py:2:1"
    (tmp_path / "nb.py").write_text(text.partition("\n")[2])
    assert installs_in_code(sources(tmp_path, "nb.py")) == ()
