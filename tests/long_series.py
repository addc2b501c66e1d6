"""What an attempt of many ranks over a day leaves, made in a moment: its series as thinning keeps
them, its events, and its metrics."""

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

from sgpu_decl.agent.attempt.monitor_files import SERIES
from sgpu_decl.agent.monitor.series_file import SeriesFile

DAY = 86_400
SLOW = 5  # the rank whose GPU does less than the others


def write_long_attempt(folder: Path, *, ranks: int = 64, seconds: int = DAY) -> None:
    """Replace the series, the events and the metrics in the folder of an attempt."""
    (folder / SERIES).unlink(missing_ok=True)
    SeriesFile(str(folder), node=0, clock=3.0).close()
    ages = ((3_600, 60), (600, 10), (0, 1))
    moments: list[tuple[int, int]] = []
    at = 0
    while at < seconds:
        span = next(span for age, span in ages if seconds - at > age)
        moments.append((at, span))
        at += span
    with closing(sqlite3.connect(folder / SERIES)) as database, database:
        database.executemany(
            "INSERT INTO ranks VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (at, rank, span, 900 + 90 * (rank % 3), 40_000 + rank * 10, span, 0)
                for at, span in moments
                for rank in range(ranks)
            ),
        )
        database.executemany(
            "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (at, gpu, span, _utilisation(at, gpu), 61_000 + (at // 600 + gpu) % 900, 81_559,
                 500, 61, 0, 0, 0)
                for at, span in moments
                for gpu in range(ranks)
            ),
        )  # fmt: skip
    _write_events(folder, ranks, seconds)
    output = folder / "output"
    output.mkdir(exist_ok=True)
    with (output / "metrics.json").open("w") as file:
        for step in range(0, seconds, 10):
            loss = 0.4 + 9 / (1 + step / 900) + 0.05 * math.sin(step)
            values = (
                {"loss": loss, "eval": {"loss": 1.1 * loss}} if step % 900 == 0 else {"loss": loss}
            )
            file.write(json.dumps({"step": step, **values}) + "\n")


def _utilisation(at: int, gpu: int) -> int:
    if at % 7_200 < 400:  # an evaluation
        return 20 + gpu % 5
    return 35 if gpu == SLOW else 88 + (at // 60 * 7 + gpu * 13) % 9


def _write_events(folder: Path, ranks: int, seconds: int) -> None:
    events: list[tuple[float, dict[str, object]]] = [(0.0, {"event": "state", "state": "starting"})]
    events += [
        (0.5 + rank / 100, {"event": "rank_started", "rank": rank, "pid": 1, "restart": 0})
        for rank in range(ranks)
    ]
    events.append((40.0, {"event": "state", "state": "running"}))
    events += [
        (seconds - 60.0 + rank / 10,
         {"event": "rank_ended", "rank": rank, "exit_code": 0, "signal": None, "restart": 0})
        for rank in range(ranks)
    ]  # fmt: skip
    events.append((float(seconds), {"event": "state", "state": "succeeded"}))
    lines = [
        json.dumps(
            {"seq": number, "time": "2026-01-01T00:00:00.000Z", "mono_ns": int(at * 1e9), **one}
        )
        for number, (at, one) in enumerate(events)
    ]
    (folder / "events.log").write_text("".join(f"00000000 {line}\n" for line in lines))
