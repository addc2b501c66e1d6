"""What holds for all tests."""

import os
import signal
import sys

from hypothesis import HealthCheck, settings

# Tests start some thousand processes: where no bytecode is kept, each compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says more about the neighbours on a machine than about the code.
settings.register_profile("sgpu", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sgpu")


def pytest_configure() -> None:
    # A shell starts background jobs with interrupts ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
