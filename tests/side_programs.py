"""Short programs that a test runs beside itself."""

import subprocess
import sys

__all__ = ["start_program"]


def start_program(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start Python code in a process of its own; the test speaks with it by lines of text."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
