"""Tests write to no cache, store or state of whoever runs them."""

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest


@pytest.mark.parametrize(
    "folder",
    [platformdirs.user_cache_path, platformdirs.user_data_path, platformdirs.user_state_path],
)
def test_a_test_that_sets_no_folders_of_its_own_writes_below_those_of_the_session(
    folder: Callable[[str], Path],
) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert home not in folder("sgpu").parents
