"""Folders that several users make and use."""

import os
from pathlib import Path

import pytest

from sgpu_decl.places.folder import MARKER, FolderPlace


@pytest.fixture
def team(tmp_path: Path) -> Path:
    path = tmp_path / "team"
    path.mkdir()
    path.chmod(0o2770)
    (path / MARKER).touch()
    return path


def test_a_folder_is_not_found_before_it_has_its_rights(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    chmod = os.chmod

    def watched(path: Path, mode: int) -> None:
        found.append((team / "p").exists())
        chmod(path, mode)

    monkeypatch.setattr(os, "chmod", watched)
    before = os.umask(0o077)
    try:
        FolderPlace(team, shared=True).make_folder(str(team / "p"))
    finally:
        os.umask(before)
    assert found == [False]
    assert (team / "p").stat().st_mode & 0o070 == 0o070
    assert sorted(os.listdir(team)) == [MARKER, "p"]


@pytest.mark.parametrize("used", [False, True])
def test_a_folder_that_another_process_makes_at_the_same_moment_is_one(
    team: Path, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """The folder of the other one stays: it may be making a file in it at this moment."""
    chmod = os.chmod
    numbers: list[int] = []

    def outrun(path: Path, mode: int) -> None:
        monkeypatch.setattr(os, "chmod", chmod)
        FolderPlace(team, shared=True).make_folder(str(team / "p"))
        numbers.append((team / "p").stat().st_ino)
        if used:
            (team / "p" / "entry").touch()
        chmod(path, mode)

    monkeypatch.setattr(os, "chmod", outrun)
    FolderPlace(team, shared=True).make_folder(str(team / "p"))
    assert sorted(os.listdir(team)) == [MARKER, "p"]
    assert [(team / "p").stat().st_ino] == numbers
    assert {*os.listdir(team / "p")} == {".keep", *(["entry"] if used else [])}
    assert (team / "p").stat().st_mode & 0o070 == 0o070
