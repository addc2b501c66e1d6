"""MLflow: the tracker process that holds one MLflow run per attempt, and where its store lies."""
