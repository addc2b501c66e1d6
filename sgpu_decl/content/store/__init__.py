"""Content that this machine keeps: the stores of code and environments, and what sends it away."""
