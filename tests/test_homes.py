"""Tests write to no cache, store or state of whoever runs them, and lie in no project."""

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest

from sgpu_decl.planning.location import project_above
from tests.temporary_root import free_of_projects


@pytest.mark.parametrize(
    "folder",
    [platformdirs.user_cache_path, platformdirs.user_data_path, platformdirs.user_state_path],
)
def test_a_test_that_sets_no_folders_of_its_own_writes_below_those_of_the_session(
    folder: Callable[[str], Path],
) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert home not in folder("sgpu").parents


def test_folders_of_tests_lie_in_no_project(tmp_path: Path) -> None:
    assert project_above(tmp_path) is None


def test_a_folder_below_a_stray_project_is_passed_over(tmp_path: Path) -> None:
    inner, free = tmp_path / "a" / "tmp", tmp_path / "tmp"
    inner.mkdir(parents=True)
    free.mkdir()
    (tmp_path / "a" / "sgpu.yml").touch()
    assert free_of_projects([str(inner), str(free)]) == str(free)
    assert free_of_projects([str(inner), str(tmp_path / "none")]) is None
