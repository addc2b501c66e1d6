"""The measurements of a node in one file, `series.db`: SQLite, thinned by age.

    meta      name, value: `format`, `node`, `began` (seconds since 1970, by the clock of the
              start), `clock` (the same moment by CLOCK_BOOTTIME)
    ranks     at, span, rank: `cpu` in thousandths of a core, `memory` in MiB, and the KiB that
              were `read` and `written`
    devices   at, span, device: `utilisation` in percent, `memory` and `room` in MiB, `power` in W,
              `temperature` in degrees Celsius, `throttle` as bits of NVML, `ecc`, `xid`
    metrics   at, span, metric, a name: `value` at the `step`, of what the ranks reported

`at` is in seconds since `began`, by a clock that nobody sets; a row holds for the `span` seconds
from there on: means, sums of `read` and `written`, the largest `memory`, `throttle`, `ecc` and
`step`. Rows of one second are kept for ten minutes, of ten seconds for an hour, of a minute for a
day, and of ten minutes for ever: 8 ranks over 24 hours take less than 2 MB.
"""

from __future__ import annotations

import os
import sqlite3
import time

from sgpu_decl.agent.attempt.monitor_files import SERIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

FORMAT = "1"
RANK_COLUMNS = ("cpu", "memory", "read", "written")
DEVICE_COLUMNS = (
    "utilisation", "memory", "room", "power", "temperature", "throttle", "ecc", "xid",
)  # fmt: skip

_AGES = ((600, 1, 10), (3_600, 10, 60), (86_400, 60, 600))
"""Rows older than so many seconds, of this span, become rows of that span."""
_SUMMED = frozenset({"read", "written"})
_LARGEST = frozenset({"memory", "room", "throttle", "ecc", "xid", "step"})
_KEYS = {"ranks": "rank", "devices": "device", "metrics": "metric"}
_COLUMNS = {"ranks": RANK_COLUMNS, "devices": DEVICE_COLUMNS, "metrics": ("step", "value")}
_MOST_METRICS = 4  # that are kept, a loss before others
_THINNED = 60.0  # seconds between two thinnings
_WRITTEN = 5.0  # seconds between two writes


class SeriesFile:
    """The series of a node, while it is written; it is continued where there is one.

    Args:
        clock: the time by CLOCK_BOOTTIME, as in all that follows.

    Raises:
        sqlite3.Error: it cannot be made.
    """

    def __init__(self, folder: str, *, node: int, clock: float) -> None:
        self._database = sqlite3.connect(os.path.join(folder, SERIES), isolation_level=None)
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _KEYS}
        self._written = self._thinned = 0
        run = self._database.execute
        run("PRAGMA synchronous = OFF")  # the run goes on after a power cut nowhere
        run("PRAGMA journal_mode = TRUNCATE")
        run("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")
        for table, key in _KEYS.items():
            columns = ", ".join(f"{name} NUMERIC" for name in _COLUMNS[table])
            kind = "TEXT" if table == "metrics" else "INTEGER"
            run(
                f"CREATE TABLE IF NOT EXISTS {table} (at INTEGER, {key} {kind}, span INTEGER, "
                f"{columns}, PRIMARY KEY (at, {key})) WITHOUT ROWID"
            )
        known = {"format": FORMAT, "node": node, "began": time.time(), "clock": clock}
        for name, value in known.items():
            run("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
        (self._began,) = run("SELECT value FROM meta WHERE name = 'clock'").fetchone()
        self._at = -1
        self._step = -1

    def add(
        self,
        clock: float,
        ranks: Mapping[int, Mapping[str, int]],
        devices: Sequence[Mapping[str, int]],
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the measurements of one second, and how far the ranks are: see
        `ProgressEstimate.to_json`.

        Raises:
            sqlite3.Error: the disk is full, or the file is gone.
        """
        at = self._at = max(self._at + 1, int(clock - self._began))  # each look has a row
        for rank, values in ranks.items():
            row = (at, rank, 1, *(values.get(name) for name in RANK_COLUMNS))
            self._rows["ranks"].append(row)
        for values in devices:
            row = (at, values["device"], 1, *(values.get(name) for name in DEVICE_COLUMNS))
            self._rows["devices"].append(row)
        if progress is not None and progress["step"] != self._step:
            self._step = progress["step"]
            known = [item for item in progress["metrics"].items() if item[1] is not None]
            known.sort(key=lambda item: "loss" not in item[0])
            for name, value in known[:_MOST_METRICS]:
                self._rows["metrics"].append((at, name, 1, self._step, value))
        if at - self._written >= _WRITTEN:
            self._written = at
            self._flush(at)

    def _flush(self, at: int) -> None:
        self._database.execute("BEGIN")
        for table, rows in self._rows.items():
            self._insert(table, rows)
            rows.clear()
        if at - self._thinned >= _THINNED:
            self._thinned = at
            self._thin(at)
        self._database.execute("COMMIT")

    def _thin(self, now: int) -> None:
        for age, span, longer in _AGES:
            before = (now - age) // longer * longer
            for table in _KEYS:
                self._merge(table, before, span, longer)

    def _merge(self, table: str, before: int, span: int, longer: int) -> None:
        key, columns = _KEYS[table], _COLUMNS[table]
        merged = ", ".join(f"{_merging(name)}({name})" for name in columns)
        query = f"SELECT at / ? * ?, {key}, ?, {merged} FROM {table} WHERE at < ? AND span = ? "  # noqa: S608
        rows = self._database.execute(
            f"{query} GROUP BY at / ?, {key}", (longer, longer, longer, before, span, longer)
        ).fetchall()
        if rows:
            delete = f"DELETE FROM {table} WHERE at < ? AND span = ?"  # noqa: S608  our own names
            self._database.execute(delete, (before, span))
            if table != "metrics":
                rows = [tuple(one and round(one) for one in row) for row in rows]
            self._insert(table, rows)

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        marks = ", ".join("?" * (3 + len(_COLUMNS[table])))
        insert = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608  our own names
        self._database.executemany(insert, rows)

    def close(self) -> None:
        """Write the rest. Raises sqlite3.Error."""
        self._flush(self._at)
        self._database.close()


def _merging(column: str) -> str:
    if column in _SUMMED:
        return "sum"
    return "max" if column in _LARGEST else "avg"


def read_series(path: str | Path, *, points: int | None = None) -> dict[str, Any]:
    """Return `began`, `clock` and `node`, and the rows of each number of `ranks` and `devices` and
    of each name of `metrics`, as mappings.

    Args:
        points: merge the rows of each into at most so many, which all have one `span`.

    Raises:
        OSError: there is no file.
        sqlite3.Error: it is damaged, or of another format.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(2, os.strerror(2), str(path))
    database = sqlite3.connect(f"file:{_quoted(os.fspath(path))}?mode=ro", uri=True)
    try:
        meta = dict(database.execute("SELECT name, value FROM meta"))
        if meta.get("format") != FORMAT:
            raise sqlite3.DatabaseError(f"its format is {meta.get('format')}, not {FORMAT}")
        found: dict[str, Any] = {name: meta[name] for name in ("began", "clock", "node")}
        width = _width(database, points) if points is not None else None
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        for table, key in _KEYS.items():
            found[table] = {}
            if table not in there:
                continue  # older files have no metrics
            names = ("at", "span", *_COLUMNS[table])
            numbered: dict[int | str, list[dict[str, Any]]] = {}
            query = f"SELECT {key}, {', '.join(names)} FROM {table} ORDER BY at"  # noqa: S608
            if width is not None:
                merged = ", ".join(f"{_merging(name)}({name})" for name in _COLUMNS[table])
                query = (
                    f"SELECT {key}, at / {width} * {width}, {width}, {merged} FROM {table} "  # noqa: S608
                    f"GROUP BY at / {width}, {key} ORDER BY 2"
                )
            for number, *values in database.execute(query):
                numbered.setdefault(number, []).append(dict(zip(names, values, strict=True)))
            found[table] = numbered
        return found
    finally:
        database.close()


def _width(database: sqlite3.Connection, points: int) -> int:
    """Seconds of a merged row: at least those of the longest row that is there."""
    end, longest = 1, 1
    for table in ("ranks", "devices"):
        query = f"SELECT coalesce(max(at), 0) + 1, coalesce(max(span), 1) FROM {table}"  # noqa: S608
        last, span = database.execute(query).fetchone()
        end, longest = max(end, last), max(longest, span)
    return max(longest, -(-end // points))


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)
