"""A call's MLflow run: named after the function, nested under the caller's, joined by its ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl import distributed
from tests.support import PATIENCE, require
from tests.tracking.conftest import mlflow_tables

__all__ = ["mlflow_tables"]

pytestmark = pytest.mark.mlflow


@pytest.fixture(autouse=True)
def tracked(project: Path, mlflow_tables: Path) -> None:
    """Calls are tracked by default: the project has no settings."""
    (project / "sgpu.yml").unlink()
    (project.parent / "cache" / "sgpu").mkdir(parents=True)
    (project.parent / "cache" / "sgpu" / "mlflow").symlink_to(mlflow_tables)


@pytest.mark.expensive
def test_a_call_is_a_run_below_the_active_one_and_ranks_join_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{project.parent / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    try:
        mlflow.create_experiment("sweep", artifact_location=str(project.parent / "artifacts"))
        mlflow.set_experiment("sweep")

        @distributed(gpus=2, gpu_type="CPU")
        def train(lr: float) -> str:
            import mlflow

            with mlflow.start_run(run_name="mine") as run:
                mlflow.log_metric("loss", lr)
            return str(run.info.run_id)

        with mlflow.start_run(run_name="outer") as outer:
            first, second = train.distributed(0.5)
        assert first == second != outer.info.run_id
        client = mlflow.MlflowClient()
        run = client.get_run(first)
        assert run.info.experiment_id == outer.info.experiment_id
        assert run.data.tags["mlflow.parentRunId"] == outer.info.run_id
        assert run.info.status == "FINISHED"
        assert run.data.metrics["loss"] == 0.5  # a slow machine logs its own too
        assert run.data.params["sgpu.args.lr"] == "0.5"
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.tracking.fluent._active_experiment_id = None


@pytest.mark.expensive
def test_a_call_is_named_after_its_function(project: Path) -> None:
    mlflow = pytest.importorskip("mlflow")

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> str:
        import mlflow

        return str(mlflow.start_run().info.run_id)

    (identity,) = train.distributed()
    run = mlflow.get_run(identity)
    assert run.info.run_name == "train"
    assert run.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in run.data.tags


CELLS = """
import sys
from sgpu_decl import distributed

@distributed(gpus=1, gpu_type="CPU")
def train():
    return 1

if __name__ == "__main__":
    train.distributed()
    assert "mlflow" not in sys.modules
    import mlflow  # the next cell
    print(*mlflow.search_runs().run_id)
"""


@pytest.mark.expensive
def test_the_next_cell_finds_the_run_that_was_printed(project: Path) -> None:
    require("mlflow")
    (project / "cells.py").write_text(CELLS)
    done = subprocess.run(
        [sys.executable, "cells.py"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = done.stdout.split()
    assert f"MLflow: run {found} of the experiment Default in sqlite:///" in done.stderr
