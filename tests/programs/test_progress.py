"""Programs that nobody changed for sgpu tell how far they are: see docs/seeing.md. How well the
remaining time is known, `make bench` measures."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is missing"),
]
SOURCES = {
    "trainer": ("transformers", "trainer"),
    "lit": ("pytorch_lightning", "trainer"),
    "bar": ("tqdm", "bar"),
    "lines": ("math", "log"),
}


@pytest.mark.parametrize("program", SOURCES)
@pytest.mark.expensive
def test_a_program_tells_how_far_it_is(project: Callable[..., Any], program: str) -> None:
    module, source = SOURCES[program]
    if find_spec(module) is None:
        pytest.skip(f"{module} is missing")
    launched = project(f"steps/{program}.py", "steps/pace.py")
    done = launched.apply(
        f"entrypoint: {program}.py", "args: [--max_steps, '101', --pause, '0.04']", gpus=1
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = launched.status()["progress"]
    assert (seen["source"], seen["total"], seen["unit"]) == (source, 101, "step")
    assert seen["step"] >= 100
