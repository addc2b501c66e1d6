"""Functions that run as ranks: the second door to the engine, beside the command line."""
