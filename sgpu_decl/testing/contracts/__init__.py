"""What every backend promises, as tests that another package can run for its own."""
