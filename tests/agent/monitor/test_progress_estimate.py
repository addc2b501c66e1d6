"""The estimate: what is known, and nothing more."""

import math

import pytest

from sgpu_decl.agent.monitor.progress_estimate import ProgressEstimate, Report, checked


def after(*points: tuple[float, float], total: float | None = 1000) -> ProgressEstimate:
    progress = ProgressEstimate()
    for at, step in points:
        progress.add(Report(step=step, total=total), at)
    return progress


def test_it_says_nothing_before_anything_was_reported() -> None:
    assert ProgressEstimate().to_json(0.0) is None


def test_the_first_steps_do_not_count_for_the_speed() -> None:
    said = after((0, 0), (60, 1), (70, 11), (80, 21)).to_json(80.0)
    assert said is not None
    assert (said["per_second"], said["seconds_left"], said["percent"]) == (1.0, 979, 2.1)


def test_time_passes_between_reports() -> None:
    said = after((0, 0), (10, 100), (20, 200), (30, 300)).to_json(35.0)
    assert said is not None
    assert said["seconds_left"] == 65


def test_without_a_total_the_speed_alone_is_known() -> None:
    said = after((0, 0), (1, 2), (2, 4), total=None).to_json(2.0)
    assert said is not None
    assert (said["per_second"], said["seconds_left"], said["percent"], said["total"]) == (
        2.0, None, None, None,
    )  # fmt: skip


def test_too_few_reports_are_no_speed() -> None:
    said = after((0, 0), (10, 100)).to_json(10.0)
    assert said is not None
    assert (said["per_second"], said["seconds_left"]) == (None, None)


def test_a_step_that_goes_back_begins_a_new_count() -> None:
    said = after((0, 0), (10, 500), (20, 900), (30, 100), (40, 110), (50, 120)).to_json(50.0)
    assert said is not None
    assert (said["step"], said["per_second"]) == (120, 1.0)


def test_a_total_may_change_and_be_passed() -> None:
    progress = after((0, 0), (1, 10), (2, 20))
    progress.add(Report(step=30, total=25), 3.0)
    said = progress.to_json(3.0)
    assert said is not None
    assert (said["percent"], said["seconds_left"]) == (100.0, 0)


def test_many_reports_take_little_memory() -> None:
    progress = after(*((at, at) for at in range(20_000)), total=40_000)
    assert len(progress._points) <= 512
    said = progress.to_json(20_000.0)
    assert said is not None
    assert said["seconds_left"] == pytest.approx(20_000, abs=2)


def test_a_percentage_is_a_share_of_the_steps_that_are_known() -> None:
    progress = after((0, 0), (10, 500))
    progress.add(Report(step=100, total=100, unit="percent"), 20.0)
    said = progress.to_json(20.0)
    assert said is not None
    assert (said["step"], said["unit"], said["percent"]) == (1000, "step", 100.0)


@pytest.mark.parametrize(
    ("step", "total"),
    [
        (None, 1),
        ("7", 10),
        (-1, 10),
        (math.nan, 1),
        (math.inf, 1),
        (10**400, 1),
        (True, 1),
        ([], 1),
    ],
)
def test_what_is_no_step_is_no_report(step: object, total: object) -> None:
    assert checked(step, total, {}, source="reported") is None


@pytest.mark.parametrize("total", [0, -3, None, "many", math.nan])
def test_what_is_no_total_is_unknown(total: object) -> None:
    report = checked(1, total, None, source="reported")
    assert report is not None
    assert report.total is None


def test_metrics_are_numbers_and_not_many() -> None:
    given = {"loss": 1.5, "name": "x", "nan": math.nan, **{f"m{n}": n for n in range(100)}}
    report = checked(1, 2, given, source="reported")
    assert report is not None
    assert report.metrics["loss"] == 1.5
    assert "name" not in report.metrics
    assert len(report.metrics) == 20
    progress = ProgressEstimate()
    progress.add(report, 0.0)
    said = progress.to_json(0.0)
    assert said is not None
    assert said["metrics"]["nan"] is None
