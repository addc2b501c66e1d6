"""What became of submitted runs: status, logs."""
