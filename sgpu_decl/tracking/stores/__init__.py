"""Ways to an MLflow store: SQL and REST, which load in a moment, and MLflow's own client."""
