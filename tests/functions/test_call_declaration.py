"""What a project says of its functions, as calls take it."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sgpu_decl import distributed
from sgpu_decl.agent.launching import warm_calls
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.prepared_call import prepare
from tests.support import until


def test_paths_of_a_project_start_at_its_file(project: Path) -> None:
    (project / "py").mkdir()
    os.symlink(sys.executable, project / "py" / "python")
    (project / "sgpu.yml").write_text("functions: {env: {python: ./py/python}}\n")

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> None: ...

    checks = {check.code: check.summary for check in train.plan().checks}
    assert checks["interpreter"].endswith(f", `{project / 'py' / 'python'}`")


def test_what_is_wrong_with_the_project_stops_a_call(project: Path) -> None:
    (project / "sgpu.yml").write_text("functions: {gpu: 1}\n")

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        train.plan()
    assert "did you mean `gpus`?" in str(caught.value) + str(caught.value.hint)


def test_calls_are_kept_warm_by_default_in_notebooks_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @distributed(gpus=2, gpu_type="CPU")
    def train() -> None: ...

    def seconds() -> float:
        return prepare(train.func, train._settings, (), {}).session.plan().keep_warm

    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert seconds() == 0
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert seconds() == 120
    (project / "sgpu.yml").write_text("functions: {keep_warm: 0}\n")
    assert seconds() == 0


def test_a_later_call_runs_in_a_fork_of_what_an_earlier_one_imported(project: Path) -> None:
    (project / "sgpu.yml").write_text(
        "functions: {mlflow: {enabled: false}, keep_warm: 1m, launch: {warm: [decimal]}}\n"
    )

    @distributed(gpus=2, gpu_type="CPU")
    def forked(text: str) -> tuple[str, bool]:
        return text, b"SGPU_WARM_KEPT=" in Path("/proc/self/environ").read_bytes()

    try:
        assert forked.distributed("a") == [("a", False)] * 2
        until(lambda: forked.distributed("b") == [("b", True)] * 2)
        (project / "sgpu.yml").write_text("functions: {mlflow: {enabled: false}}\n")
        assert forked.distributed("c") == [("c", False)] * 2
    finally:
        warm_calls._servers.clear()
