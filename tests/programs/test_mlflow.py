"""Programs that configure MLflow themselves leave what they leave under torchrun."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.programs.conftest import Project
from tests.support import require

require("mlflow")
require("torch")
pytestmark = [pytest.mark.mlflow, pytest.mark.torch, pytest.mark.expensive]


def left(uri: str) -> "list[tuple[Any, ...]]":
    """Every run of a store but those of attempts: what the program itself recorded."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    names = {
        experiment.experiment_id: experiment.name for experiment in client.search_experiments()
    }
    runs = [run for run in client.search_runs(list(names)) if "sgpu.token" not in run.data.tags]
    return sorted(
        (
            names[run.info.experiment_id],
            run.info.run_name if "-" in run.info.run_name or run.data.params == {} else "",
            run.info.status,
            sorted(run.data.metrics.items()),
            sorted(run.data.params.items()),
            "mlflow.parentRunId" in run.data.tags,
        )
        for run in runs
    )


def torchrun(project: Project, name: str, environ: Mapping[str, str]) -> None:
    words = ["torchrun", "--nproc-per-node", "2", "--master-port", "0", name]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words[1:]],
        cwd=project.folder,
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Make a store with the experiment, so that ranks do not race to make them, and have ranks find
    it. A rank that loses that race logs to the experiment `Default`, in MLflow itself."""

    def made(name: str) -> str:
        from mlflow import MlflowClient

        uri = f"sqlite:///{tmp_path / name}.db"
        MlflowClient(uri).create_experiment("digits")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        return uri

    return made


def test_a_program_that_sets_its_own_experiment(
    project: Callable[..., Project], store: Callable[[str], str]
) -> None:
    made = project("own_experiment.py")
    theirs = store("theirs")
    torchrun(made, "own_experiment.py", os.environ)
    ours = store("ours")
    done = made.apply("entrypoint: own_experiment.py", tracked=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left(ours) == left(theirs)
    assert len(left(ours)) == 8


def test_a_program_that_sets_its_own_tracking_uri(
    project: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project("own_store.py")
    stores = {who: tmp_path / who for who in ("theirs", "ours")}
    for who, folder in stores.items():
        folder.mkdir()
        monkeypatch.setenv("STORES", str(folder))
        if who == "theirs":
            torchrun(made, "own_store.py", os.environ)
        else:
            done = made.apply("entrypoint: own_store.py", tracked=True)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "of its own, in the experiment" in done.stderr
    for rank in (0, 1):
        ours, theirs = (
            [run[:1] + run[2:] for run in left(f"sqlite:///{stores[who] / f'rank{rank}.db'}")]
            for who in ("ours", "theirs")
        )
        assert ours == theirs
        assert len(ours) == 2
