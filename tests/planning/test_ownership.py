"""Whose run it is: said only where two files claim it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.model.address import Address
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.planning.ownership import Owners

RUN = "name: train\ngpus: 1\ntype: CPU\ncommand: ['true']\n"
PROJECT = "project: {name: p}\nruns:\n  train: {gpus: 1, type: CPU, command: ['true']}\n"


@pytest.mark.parametrize("text", [RUN, PROJECT, RUN + "matrix: {lr: [1, 2]}\n"])
def test_a_file_that_declares_the_run_still_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "old.yaml").write_text(text)
    (found,) = Owners(tmp_path).dispute(Address.run("train", "lr=1"), "old.yaml", "new.yaml")
    assert found.code == "owner_changed"
    assert "`old.yaml`" in found.summary
    assert "`new.yaml`" in found.summary


@pytest.mark.parametrize(
    "text",
    [None, "", "name: [", RUN.replace("train", "other"), "project: {name: p}\nruns: 1\n"],
    ids=["renamed", "empty", "broken", "of another run", "no runs"],
)
def test_a_file_that_no_longer_does_is_nothing_to_say(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "old.yaml").write_text(text)
    assert Owners(tmp_path).dispute(Address.run("train"), "old.yaml", "new.yaml") == ()


def test_a_file_is_read_once_for_all_cells(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(RUN)
    owners = Owners(tmp_path)
    assert owners.dispute(Address.run("train", "lr=1"), "old.yaml", "new.yaml")
    (tmp_path / "old.yaml").unlink()
    assert owners.dispute(Address.run("train", "lr=2"), "old.yaml", "new.yaml")


def test_a_renamed_file_is_an_update_without_a_warning(
    folder: Path, apply: Callable[..., Plan], open_file: Callable[..., Session]
) -> None:
    (folder / "run.yaml").write_text(RUN + "mlflow: {enabled: false}\n")
    apply()
    (folder / "train.yaml").write_bytes((folder / "run.yaml").read_bytes())
    both = open_file("train.yaml").plan(PlanOptions()).plan
    assert [check.code for check in both.checks] == ["owner_changed"]

    (folder / "run.yaml").unlink()
    renamed = open_file("train.yaml").plan(PlanOptions()).plan

    assert renamed.checks == ()
    assert [change.action for change in renamed.changes] == [Action.UPDATE]
