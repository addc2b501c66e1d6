"""Runs that are watched: beside `cat` of the same lines, on a terminal and on a pipe, and what
`sgpu top` and `sgpu report` take.

Of lines the time counts from the first to the last, as whoever reads them sees it: how long a run
takes to start is another row's matter.
"""

import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from measuring import Row

__all__ = ["watching"]

LINES = 400_000
# A pipe takes 1 GB/s: cat copies and looks at nothing, where sgpu looks for tokens.
LIMITS = {"a terminal": 3, "a pipe": 16}
FIRST, LAST = b"line 0", f"line {LINES - 1}".encode()
SGPU = str(Path(sys.executable).with_name("sgpu"))

RANKS = 64
WRITING = "while sleep 1; do echo rank $RANK; done"
TOP_SECONDS = 20

Opened = Callable[[], tuple[int, int]]


def watching(scratch: Path, repeats: int) -> Iterator[Row]:
    folder = scratch / "watched"
    folder.mkdir()
    lines = folder / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(LINES)))
    (folder / "run.yaml").write_text(
        "name: watched\ngpus: 1\ntype: CPU\nuntil: always\nmlflow: {enabled: false}\n"
        f"command: [cat, {lines}]\n"
    )
    for where, opened in (("a terminal", _terminal), ("a pipe", os.pipe)):
        cat: list[float] = []
        ours: dict[str, list[float]] = {"attached apply": [], "sgpu logs": []}
        for _ in range(max(3, repeats // 3)):
            cat.append(_seconds(["cat", str(lines)], folder, opened))
            for what, argv in (
                ("attached apply", [SGPU, "apply", "-y", "run.yaml"]),
                ("sgpu logs", [SGPU, "logs", "watched"]),
            ):
                ours[what].append(_seconds(argv, folder, opened))
        beside = statistics.median(cat)
        for what, times in ours.items():
            yield Row(
                what=f"{LINES:,} lines on {where}: {what}",
                took=f"{statistics.median(times) * 1000:.0f} ms",
                against=f"cat, {beside * 1000:.0f} ms",
                ratio=statistics.median(times) / beside,
                limit=LIMITS[where],
            )

    yield _top(scratch)
    yield _report(scratch)


def _report(scratch: Path) -> Row:
    """The report of a run of 64 ranks over a day: its first one, which also makes the library of
    plots."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.long_series import write_long_attempt

    folder = scratch / "report"
    folder.mkdir()
    (folder / "run.yaml").write_text(
        f"name: watched\ngpus: {RANKS}\ntype: CPU\nmlflow: {{enabled: false}}\ncommand: 'true'\n"
    )
    subprocess.run([SGPU, "apply", "-y"], cwd=folder, capture_output=True, check=True)
    write_long_attempt(folder / ".sgpu/default/runs/watched/1", ranks=RANKS)
    times = []
    for number in range(3):
        environ = {**os.environ, "XDG_CACHE_HOME": str(folder / f"cache{number}")}
        started = time.perf_counter()
        subprocess.run([SGPU, "report"], cwd=folder, env=environ, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    seconds = min(times)
    size = (folder / "sgpu-report-watched-1.html").stat().st_size
    return Row(
        what=f"sgpu report of {RANKS} ranks over 24 h, {size / 1e6:.1f} MB",
        took=f"{seconds:.1f} s",
        against="five seconds",
        ratio=seconds / 5,
        limit=1.0,
    )


def _top(scratch: Path) -> Row:
    """What `sgpu top` takes of a core while it shows ranks that write a line a second."""
    folder = scratch / "top"
    folder.mkdir()
    (folder / "run.yaml").write_text(
        f"name: watched\ngpus: {RANKS}\ntype: CPU\nmlflow: {{enabled: false}}\n"
        f"grace: 500ms\ncommand: [sh, -c, '{WRITING}']\n"
    )
    subprocess.run([SGPU, "apply", "-y", "--detach"], cwd=folder, capture_output=True, check=True)
    ours, theirs = _terminal()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(
        [SGPU, "top", "watched"], cwd=folder, env={**os.environ, "TERM": "xterm-256color"},
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        _read_for(ours, 3)  # its start is no part of it
        before = _processor_seconds(process.pid)
        _read_for(ours, TOP_SECONDS)
        share = (_processor_seconds(process.pid) - before) / TOP_SECONDS
        os.write(ours, b"q")
    os.close(ours)
    subprocess.run([SGPU, "cancel", "watched"], cwd=folder, capture_output=True, check=True)
    return Row(
        what=f"processor time of sgpu top of {RANKS} ranks",
        took=f"{share * 1e3:.1f} ms per s",
        against="three hundredths of a core",
        ratio=share / 0.03,
        limit=1.0,
    )


def _read_for(terminal: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            os.read(terminal, 1 << 16)


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _terminal() -> tuple[int, int]:
    return pty.openpty()


def _seconds(argv: Sequence[str], folder: Path, opened: Opened) -> float:
    """How long it takes from the first line to the last.

    Raises:
        SystemExit: they did not come.
    """
    ours, theirs = opened()
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs if os.isatty(theirs) else subprocess.DEVNULL,
    ):
        os.close(theirs)
        first = last = None
        tail = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # a terminal whose other side has closed
                break
            if not chunk:
                break
            moment = time.perf_counter()
            if first is None and FIRST in tail + chunk:
                first = moment
            if LAST in tail + chunk:
                last = moment
            tail = chunk[-len(LAST) :]
    os.close(ours)
    if first is None or last is None:
        sys.exit(f"`{' '.join(argv)}` did not show all lines")
    return last - first
