"""The folder that nodes of one machine read outputs of other runs from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.node import input_folder
from sgpu_decl.agent.node.input_folder import InputFolder, delete_unused, folder_of_launch


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[InputFolder]]:
    """Those of three launches."""
    monkeypatch.setattr(input_folder, "_FOLDERS", str(tmp_path / "inputs-"))
    made = [InputFolder(folder_of_launch(f"{number}" * 40)) for number in range(3)]
    yield made
    for folder in made:
        folder.release()


def test_what_killed_nodes_left_is_deleted_and_nothing_that_is_used(
    folders: list[InputFolder], tmp_path: Path
) -> None:
    filling, whole, left = folders
    assert [folder.take() for folder in folders] == [True] * 3
    whole.finish()
    assert left.lock is not None
    os.close(left.lock)
    left.lock = None
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "inputs-link").symlink_to(elsewhere)

    delete_unused()

    assert [os.path.exists(folder.path) for folder in (filling, whole, left)] == [True, True, False]
    assert elsewhere.exists()


def test_a_folder_is_filled_once_and_shared_when_it_is_whole(folders: list[InputFolder]) -> None:
    first, second = folders[0], InputFolder(folders[0].path)
    assert (first.take(), first.lock is None) == (True, False)
    assert (second.take(), second.lock is None) == (False, True)

    first.finish()

    assert (second.take(), second.lock is None) == (False, False)
    second.release()
    assert os.path.exists(first.path)


def test_a_folder_that_is_filled_again_is_empty(folders: list[InputFolder], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    folder = Path(folders[0].path)
    (folder / "train-1/sub").mkdir(parents=True)
    (folder / ".whole").touch()
    (folder / "link").symlink_to(kept)

    assert folders[0].take()

    assert list(folder.iterdir()) == []
    assert kept.exists()
