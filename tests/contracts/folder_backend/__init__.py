"""A backend of another package: nodes are processes that share one folder and nothing else."""
