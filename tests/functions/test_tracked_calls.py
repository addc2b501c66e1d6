"""A call's MLflow run: named after the function, nested under the caller's, joined by its ranks."""

from pathlib import Path

import pytest

from sgpu_decl import distributed

pytestmark = pytest.mark.mlflow


@pytest.fixture(autouse=True)
def tracked(project: Path) -> None:
    """Calls are tracked by default: the project has no settings."""
    (project / "sgpu.yml").unlink()


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


def test_a_call_is_named_after_its_function(project: Path) -> None:
    mlflow = pytest.importorskip("mlflow")

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> str:
        import mlflow

        return str(mlflow.start_run().info.run_id)

    (identity,) = train.distributed()
    store = f"sqlite:///{project / '.sgpu' / 'mlflow.db'}"
    run = mlflow.MlflowClient(tracking_uri=store).get_run(identity)
    assert run.info.run_name == "train"
    assert run.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in run.data.tags
