"""What a project says of its functions, as calls take it."""

import os
import sys
from pathlib import Path

import pytest

from sgpu_decl import distributed
from sgpu_decl.errors import InvalidInput


def test_paths_of_a_project_start_at_its_file(project: Path) -> None:
    (project / "py").mkdir()
    os.symlink(sys.executable, project / "py" / "python")
    (project / "sgpu.yml").write_text("functions: {env: {python: ./py/python}}\n")

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> None: ...

    checks = {check.id: check.summary for check in train.plan().checks}
    assert checks["interpreter"].endswith(f", `{project / 'py' / 'python'}`")


def test_what_is_wrong_with_the_project_stops_a_call(project: Path) -> None:
    (project / "sgpu.yml").write_text("functions: {gpu: 1}\n")

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        train.plan()
    assert "did you mean `gpus`?" in str(caught.value) + str(caught.value.hint)
