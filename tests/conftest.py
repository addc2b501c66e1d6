"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    # A shell starts background jobs with interrupts ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
