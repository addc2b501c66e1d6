"""The state in one SQLite database per project and target."""
