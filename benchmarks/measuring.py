"""What commands take, and a line of the benchmark table."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Measurement", "Row", "alternating", "measure"]

PATIENCE = 60.0  # seconds
# The peak memory of a process includes that of the process it was forked from: a small one.
SPAWN = """
import os, sys, time
started = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ), 0)
seconds = time.perf_counter() - started
with open(sys.argv[1], "w") as file:
    print(seconds, os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, file=file)
"""
PYTHON_VARIABLES = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`limit` is the ratio not to be passed, None where it only informs."""

    what: str
    took: str
    against: str
    ratio: float
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of wall clock and bytes of peak memory of one command."""

    seconds: float
    memory: int

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.memory / 1e6:.0f} MB"

    @classmethod
    def median(cls, rounds: Sequence["Measurement"]) -> "Measurement":
        """The median of the seconds, with the largest memory."""
        return cls(
            seconds=statistics.median(item.seconds for item in rounds),
            memory=max(item.memory for item in rounds),
        )


def measure(argv: Sequence[str], cwd: Path, *, fine: tuple[int, ...] = (0,)) -> Measurement:
    """Run one command, measured.

    Raises:
        SystemExit: it ended with a code that is not in `fine`; the message has its output.
    """
    env = {name: value for name, value in os.environ.items() if name not in PYTHON_VARIABLES}
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile("r") as answer:
        spawn = [sys.executable, "-I", "-S", "-c", SPAWN, answer.name, *argv]
        subprocess.run(spawn, cwd=cwd, env=env, stdout=output, stderr=output, check=True)
        seconds, code, memory = answer.read().split()
        if int(code) not in fine:
            output.seek(0)
            text = output.read().decode(errors="replace")[-3000:]
            sys.exit(f"`{' '.join(argv)}` ended with {code}:\n{text}")
    return Measurement(seconds=float(seconds), memory=int(memory))


def alternating(
    commands: Sequence[tuple[Sequence[str], Path]], repeats: int, *, warm: bool = False
) -> tuple[list[Measurement], int]:
    """Run the commands in turn; return their medians and the number of rounds they are of.

    There are `repeats` rounds after one to `warm` up if asked, or fewer once they took `PATIENCE`.
    """
    if warm:
        for argv, cwd in commands:
            measure(argv, cwd)
    rounds: list[list[Measurement]] = []
    started = time.perf_counter()
    while len(rounds) < repeats and (not rounds or time.perf_counter() - started < PATIENCE):
        rounds.append([measure(argv, cwd) for argv, cwd in commands])
    return [Measurement.median(column) for column in zip(*rounds, strict=True)], len(rounds)
