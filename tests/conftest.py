"""What holds for all tests."""

import os
import signal
import sys

# Tests start some thousand processes: where no bytecode is kept, each compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure() -> None:
    # A shell starts background jobs with interrupts ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
