"""The series of a day: small, thinned by age, and never an obstacle."""

import sqlite3
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.monitor_files import SERIES
from sgpu_decl.agent.monitor.series_file import SeriesFile, read_series

DAY = 86_400


def rank(at: int, number: int = 0) -> dict[str, int]:
    return {"cpu": 1000 + at % 100, "memory": 40_000 + number + at % 7, "read": 64, "written": 1}


def device(number: int, at: int) -> dict[str, int]:
    return {
        "device": number, "utilisation": at % 101, "memory": 70_000 + at % 9, "room": 81_559,
        "power": 600 + at % 50, "temperature": 60, "throttle": 0, "ecc": 0,
    }  # fmt: skip


@pytest.mark.expensive
def test_a_day_of_eight_ranks_takes_less_than_two_megabytes(tmp_path: Path) -> None:
    series = SeriesFile(str(tmp_path), node=0, clock=500.0)
    for at in range(DAY):
        ranks = {number: rank(at, number) for number in range(8)}
        metrics = dict.fromkeys(("loss", "lr", "grad_norm", "tokens"), 1 / (1 + at))
        progress = {"step": at, "metrics": metrics}
        series.add(500.0 + at, ranks, [device(number, at) for number in range(8)], progress)
    series.close()
    assert (tmp_path / SERIES).stat().st_size < 2_000_000
    found = read_series(tmp_path / SERIES)
    rows = found["ranks"][7]
    assert sum(row["span"] for row in rows) == DAY
    assert sum(row["read"] for row in rows) == DAY * 64
    assert {row["span"] for row in rows} == {1, 10, 60}
    assert max(row["memory"] for row in rows) == 40_013
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert found["devices"][3][-1]["utilisation"] == (DAY - 1) % 101


def test_old_rows_grow_longer(tmp_path: Path) -> None:
    series = SeriesFile(str(tmp_path), node=1, clock=0.0)
    for at in range(0, 2 * DAY, 7):
        series.add(float(at), {0: rank(at)}, [])
    series.close()
    rows = read_series(tmp_path / SERIES)["ranks"][0]
    assert rows[0]["span"] == 600
    assert len(rows) < 2_400


def test_it_goes_on_after_a_restart_of_ranks(tmp_path: Path) -> None:
    for begin in (100.0, 160.0):
        series = SeriesFile(str(tmp_path), node=0, clock=begin)
        for second in range(10):
            series.add(begin + second, {0: rank(second)}, [])
        series.close()
    assert [row["at"] for row in read_series(tmp_path / SERIES)["ranks"][0]] == [
        *range(10), *range(60, 70),
    ]  # fmt: skip


def test_it_is_read_while_it_is_written(tmp_path: Path) -> None:
    series = SeriesFile(str(tmp_path), node=0, clock=0.0)
    for at in range(20):
        series.add(float(at), {0: rank(at)}, [])
        if at >= 10:
            assert len(read_series(tmp_path / SERIES)["ranks"][0]) >= 5
    series.close()


def test_what_nvml_does_not_tell_is_missing(tmp_path: Path) -> None:
    series = SeriesFile(str(tmp_path), node=0, clock=0.0)
    series.add(1.0, {}, [{"device": 0, "memory": 7}])
    series.close()
    (row,) = read_series(tmp_path / SERIES)["devices"][0]
    assert (row["memory"], row["utilisation"], row["power"]) == (7, None, None)


def test_a_file_that_is_cut_short_or_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_series(tmp_path / SERIES)
    series = SeriesFile(str(tmp_path), node=0, clock=0.0)
    for at in range(3000):
        series.add(float(at), {0: rank(at)}, [])
    series.close()
    whole = (tmp_path / SERIES).read_bytes()
    (tmp_path / SERIES).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(sqlite3.Error):
        read_series(tmp_path / SERIES)
    (tmp_path / SERIES).write_bytes(b"no database at all, but text" * 100)
    with pytest.raises(sqlite3.Error):
        read_series(tmp_path / SERIES)


def test_metrics_that_ranks_report_are_kept_by_step(tmp_path: Path) -> None:
    series = SeriesFile(str(tmp_path), node=0, clock=0.0)
    for at in range(2_000):
        metrics = {"lr": 0.5, "7": 1.0, "a": 1.0, "b": 2.0, "train_loss": 1 / (1 + at // 2)}
        progress = {"step": at // 2, "metrics": {**metrics, "nan": None}}
        series.add(float(at), {0: rank(at)}, [], progress)
    series.close()
    found = read_series(tmp_path / SERIES)["metrics"]
    assert list(found) == ["7", "a", "lr", "train_loss"]  # four, the loss among them
    rows = found["train_loss"]
    assert (rows[-1]["step"], rows[-1]["value"]) == (999, pytest.approx(1 / 1000))
    assert {row["span"] for row in rows} == {1, 10}
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    few = read_series(tmp_path / SERIES, points=50)["metrics"]["train_loss"]
    assert len(few) <= 50
    assert few[-1]["step"] == 999


def test_a_file_of_an_older_version_has_no_metrics(tmp_path: Path) -> None:
    series = SeriesFile(str(tmp_path), node=0, clock=0.0)
    series.add(0.0, {0: rank(0)}, [])
    series.close()
    with sqlite3.connect(tmp_path / SERIES) as database:
        database.execute("DROP TABLE metrics")
    database.close()
    found = read_series(tmp_path / SERIES, points=10)
    assert (found["metrics"], list(found["ranks"])) == ({}, [0])
