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

__all__ = ["Row", "Taken", "alternating", "take"]

PATIENCE = 60.0  # seconds
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
class Taken:
    """Seconds of wall clock and bytes of peak memory of one command."""

    seconds: float
    memory: int


def take(argv: Sequence[str], cwd: Path, *, fine: tuple[int, ...] = (0,)) -> Taken:
    """Run one command, measured.

    Raises:
        SystemExit: it ended with a code that is not in `fine`; what it said is shown.
    """
    env = {name: value for name, value in os.environ.items() if name not in PYTHON_VARIABLES}
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in fine:
            said.seek(0)
            text = said.read().decode(errors="replace")[-3000:]
            sys.exit(f"`{' '.join(argv)}` ended with {process.returncode}:\n{text}")
    return Taken(seconds=seconds, memory=usage.ru_maxrss * 1024)


def alternating(
    commands: Sequence[tuple[Sequence[str], Path]], repeats: int, *, warm: bool = False
) -> tuple[list[Taken], int]:
    """Run the commands in turn; return their medians and the number of rounds they are of.

    There are `repeats` rounds after one to `warm` up if asked, or fewer once they took `PATIENCE`.
    """
    if warm:
        for argv, cwd in commands:
            take(argv, cwd)
    rounds: list[list[Taken]] = []
    started = time.perf_counter()
    while len(rounds) < repeats and (not rounds or time.perf_counter() - started < PATIENCE):
        rounds.append([take(argv, cwd) for argv, cwd in commands])
    medians = [
        Taken(
            seconds=statistics.median(taken.seconds for taken in column),
            memory=int(statistics.median(taken.memory for taken in column)),
        )
        for column in zip(*rounds, strict=True)
    ]
    return medians, len(rounds)
