"""The test scripts that ship inside Hugging Face accelerate assert on every rank by themselves.

Those that are launched here pass on CPUs under torchrun too; the others want GPUs or the network.
Without GPUs accelerate takes each rank for a world of its own unless it is told otherwise, and its
scripts then check little and pass: so what they say of their world is looked at, too.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ACCELERATE = find_spec("accelerate")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not (ACCELERATE and find_spec("torch")), reason="accelerate is missing"),
]
SCRIPTS = "accelerate.test_utils.scripts"
ON_CPU = "env: {variables: {ACCELERATE_USE_CPU: 'true'}}"  # as `accelerate launch --cpu` sets
WORLD = "Distributed environment: DistributedType.MULTI_CPU  Backend: gloo\nNum processes: 2\n"


@pytest.mark.expensive
def test_the_large_script_started_by_its_file(project: Callable[..., Any]) -> None:
    assert ACCELERATE
    assert ACCELERATE.submodule_search_locations
    folder = ACCELERATE.submodule_search_locations[0]
    item = project()
    item.launch(ON_CPU, f"entrypoint: {folder}/test_utils/scripts/test_script.py")
    for rank in (0, 1):
        place = f"Process index: {rank}\nLocal process index: {rank}\n"
        assert WORLD + place in item.printed(rank)
    assert "Test reinstantiated state" in item.printed(0)  # the last of its tests


@pytest.mark.expensive
def test_gradients_are_synchronised_in_a_module_that_is_a_command(
    project: Callable[..., Any],
) -> None:
    item = project()
    item.launch(ON_CPU, f"command: ['{sys.executable}', -m, {SCRIPTS}.test_sync]")
    assert "Test Distributed `no_sync` context manager with multiple forwards" in item.printed(0)


@pytest.mark.expensive
def test_collective_operations_called_by_a_function(project: Callable[..., Any]) -> None:
    item = project("ops.py")
    item.launch("entrypoint: ops.py:main")
    assert WORLD in item.printed(0)
    assert "testing sending tensors across devices" in item.printed(0)  # the last of its tests
