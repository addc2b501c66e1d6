"""One way of using MLflow by name, with what has to come of it. `main` is called as a function."""

import os
import sys

import mlflow
from mlflow.tracking._tracking_service.client import TrackingServiceClient


def log_model() -> "mlflow.models.model.ModelInfo":
    return mlflow.pyfunc.log_model(
        name="m", python_model=lambda model_input: model_input, pip_requirements=["mlflow"]
    )


def main(choice: str) -> str:
    own, store = os.environ["MLFLOW_RUN_ID"], os.environ["MLFLOW_TRACKING_URI"]
    rank = os.environ["RANK"]
    other = "sqlite:///" + os.path.join(os.environ["SGPU_OUTPUT_DIR"], f"own{rank}.db")
    if choice == "experiment":
        mlflow.set_experiment("other")
        with mlflow.start_run(run_name="mine") as run:
            mlflow.log_metric("loss", 0.5)
        assert mlflow.get_experiment(run.info.experiment_id).name == "other"
        assert run.info.run_id != own
    elif choice == "experiment of two ranks":  # another rank makes it at the same moment
        create = TrackingServiceClient.create_experiment
        TrackingServiceClient.create_experiment = lambda *given: [create(*given), create(*given)]
        mlflow.set_experiment("other")
        with mlflow.start_run() as run:
            mlflow.log_metric("loss", 0.5)
        assert mlflow.get_experiment(run.info.experiment_id).name == "other"
    elif choice == "our experiment":
        mlflow.set_experiment(os.environ["SGPU_RUN_NAME"])
        assert mlflow.start_run().info.run_id == own
    elif choice == "store":
        mlflow.set_tracking_uri(other)
        mlflow.log_metric("loss", 0.5)
        assert len(mlflow.search_runs(search_all_experiments=True)) == 1
    elif choice == "store and back":
        mlflow.set_tracking_uri(other)
        mlflow.set_tracking_uri(store)
        mlflow.log_metric("loss", 0.5)
        assert mlflow.active_run().info.run_id == own
    elif choice == "bare":
        mlflow.log_metric("loss", 0.5)
        assert mlflow.active_run().info.run_id == own
    elif choice == "model first":
        model = log_model()
        assert model.run_id == own
        assert mlflow.active_run() is None
        with mlflow.start_run() as run:
            assert run.info.run_id == own
    elif choice == "model beside another experiment":
        mlflow.set_experiment("other")
        model = log_model()
        assert model.run_id is None
    elif choice == "nested":
        with mlflow.start_run(run_name="parent") as run:  # noqa: SIM117 - as people write it
            with mlflow.start_run(run_name="child", nested=True) as child:
                mlflow.log_metric("loss", 0.5)
        assert run.info.run_id == own == child.data.tags["mlflow.parentRunId"]
    elif choice == "several":
        ids = []
        for number in range(3):
            with mlflow.start_run(run_name=f"trial-{number}") as run:
                mlflow.log_param("number", number)
            ids.append(run.info.run_id)
        assert ids[0] == own
        assert len(set(ids)) == 3
    elif choice == "argument":
        experiment = mlflow.create_experiment(f"other-{rank}")
        with mlflow.start_run(experiment_id=experiment) as run:
            mlflow.log_metric("loss", 0.5)
        assert run.info.experiment_id == experiment
    elif choice == "variable":
        os.environ["MLFLOW_EXPERIMENT_NAME"] = f"other-{rank}"
        with mlflow.start_run() as run:
            mlflow.log_metric("loss", 0.5)
        assert mlflow.get_experiment(run.info.experiment_id).name == f"other-{rank}"
    else:
        raise ValueError(choice)
    return choice


if __name__ == "__main__":
    print("chose", main(sys.argv[1]))
