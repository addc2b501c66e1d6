"""A training as people write it: it chooses its own MLflow experiment and names its runs."""

import mlflow

mlflow.set_experiment("digits")
for rate in (0.1, 0.01):
    with mlflow.start_run(run_name=f"lr-{rate}"):
        mlflow.log_params({"lr": rate, "epochs": 3})
        for epoch in range(3):
            mlflow.log_metric("loss", rate / (epoch + 1), step=epoch)
        with mlflow.start_run(run_name=f"evaluation-{rate}", nested=True):
            mlflow.log_metric("accuracy", 1 - rate)
