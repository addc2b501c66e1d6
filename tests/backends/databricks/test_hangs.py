"""Ranks that hang on a workspace, as their user sees it."""

from pathlib import Path

import pytest

from tests.backends.hanging_run import HangingRun
from tests.support import require


@pytest.mark.torch
@pytest.mark.expensive
def test_a_hang_is_seen_and_ends_the_run(project: Path) -> None:
    require("torch")
    fields = {"gpus": 3, "type": "A10", "env": {"base": "gpu-6"}, "backend": "databricks"}
    run = HangingRun(project, fields)
    run.is_seen(3)
    run.is_ended(3)
