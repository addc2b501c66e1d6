"""A plan says where ranks import torch one by one."""

import pytest

from tests.cli.conftest import Shell

RUN = "name: train\ngpus: 2\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [("", True), ("launch: {warm: [torch]}\n", False), ("launch: {warm: off}\n", False)],
)
def test_a_function_that_imports_torch_inside_is_named(sgpu: Shell, more: str, said: bool) -> None:
    sgpu.write("train.py", "def main():\n    import torch\n    return torch.__version__\n")
    sgpu.write("run.yaml", RUN + more)
    plan = sgpu.done("plan", "run.yaml")
    assert ("info[torch_imported_late]" in plan.out) is said
    assert ("train.py:2:5" in plan.out) is said
