"""`sgpu open`, and links in `sgpu status`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import AtTerminal, Shell

RUN = "name: train\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\ncommand: 'true'\n"
URL = "https://mlflow.example.com/#/experiments/7/runs/r1"


@pytest.fixture
def train(sgpu: Shell) -> Shell:
    """A run that succeeded."""
    sgpu.write("run.yaml", RUN)
    sgpu.done("apply", "-y")
    return replace(sgpu, environ={**sgpu.environ, "DISPLAY": "", "WAYLAND_DISPLAY": ""})


def track(shell: Shell, store: str) -> None:
    """Let its tracker have left the run of a store."""
    record = {"run_id": "r1", "experiment_id": "7", "experiment": "e", "tracking_uri": store}
    (attempt,) = shell.folder.glob(".sgpu/default/runs/train/1")
    (attempt / "mlflow.json").write_text(json.dumps(record))


def test_a_run_without_a_page_has_a_way_out(train: Shell) -> None:
    err = train.exits(1, "open", "train").err
    assert "error[no_page]: `train#1` has no page that a browser can show" in err
    assert "hint: `sgpu report 'train#1'` writes a page about it" in err
    track(train, f"sqlite:///{train.folder}/.sgpu/mlflow.db")
    assert "`sgpu mlflow ui` serves the pages of MLflow" in train.exits(1, "open").err


def test_without_a_browser_the_address_is_printed(train: Shell) -> None:
    track(train, "https://mlflow.example.com")
    assert train.done("open", "train").out == f"{URL}\n"
    err = train.exits(1, "open", "train#1", "--page", "run").err
    assert "`train#1` has no page of this kind" in err
    assert "hint: it has `--page mlflow`" in err


def test_the_browser_opens_the_page(train: Shell, tmp_path: Path) -> None:
    track(train, "https://mlflow.example.com")
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    desk = replace(train, environ={**train.environ, "BROWSER": str(browser)})
    assert desk.done("open", "--print").out == f"{URL}\n"
    assert not opened.exists()
    assert f"opened {URL}" in desk.done("open", "train").err
    assert opened.read_text() == f"{URL}\n"


def test_names_of_nothing(train: Shell) -> None:
    assert "no run matches `eval`" in train.exits(1, "open", "eval").err
    assert "job.nightly" in train.exits(1, "open", "job.nightly").err


@pytest.mark.parametrize(
    ("width", "environ", "link"),
    [
        (80, {}, ""),
        (200, {}, f"  {URL}"),
        (80, {"TERM": "xterm-kitty"}, f"\x1b]8;;{URL}\x1b\\train#1\x1b]8;;\x1b\\"),
    ],
)
def test_status_has_links_where_there_is_room(
    train: Shell, at_terminal: AtTerminal, width: int, environ: dict[str, str], link: str
) -> None:
    track(train, "https://mlflow.example.com")
    with at_terminal("status", width=width, environ=environ) as terminal:
        assert terminal.ended() == 0
    (line,) = [one for one in terminal.all.splitlines() if "succeeded" in one]
    assert link in line
    assert (URL in line) is bool(link)
    assert URL not in train.done("status").out
