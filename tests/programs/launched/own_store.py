"""A training that keeps its MLflow store in a place of its own, one for each rank."""

import os

import mlflow

mlflow.set_tracking_uri(f"sqlite:///{os.environ['STORES']}/rank{os.environ['RANK']}.db")
mlflow.log_param("epochs", 3)
for epoch in range(3):
    mlflow.log_metric("loss", 1 / (epoch + 1), step=epoch)
mlflow.end_run()
mlflow.set_experiment("digits")
with mlflow.start_run(run_name="second"):
    mlflow.log_metric("accuracy", 0.9)
