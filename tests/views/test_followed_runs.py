from datetime import UTC, datetime, timedelta

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.followed_runs import progress
from sgpu_decl.views.terminal import columns

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def status(name: str, state: str, seconds: int | None = None) -> AttemptView:
    started = None if seconds is None else NOW - timedelta(seconds=seconds)
    ref = AttemptRef(Address.parse(f"run.{name}"), 1)
    return AttemptView(ref=ref, backend="local", state=AttemptState(state), started_at=started)


def lines(statuses: list[AttemptView], width: int = 80, height: int = 24) -> list[str]:
    return progress(statuses, now=NOW, width=width, height=height).plain.split("\n")


def test_a_single_run_is_one_line_queued_or_not() -> None:
    assert lines([status("train", "queued")]) == ["train#1  queued"]
    assert lines([status("train", "running", 75)]) == ["train#1  running   1 m 15 s"]


def test_of_several_those_at_work_have_a_line_and_all_are_counted() -> None:
    shown = lines(
        [
            status("b", "running", 3600),
            status("c", "queued"),
            status("a-longer", "starting", 0),
            status("d", "failed", 9),
        ]
    )
    assert shown == [
        "a-longer#1  starting  0 s",
        "b#1         running   1 h",
        "4 runs: 1 queued, 1 starting, 1 running, 1 failed",
    ]


def test_a_hundred_take_a_third_of_the_window() -> None:
    many = [status(f"r{number:03}", "running", 1) for number in range(100)]
    shown = lines(many, height=12)
    assert shown[-2:] == ["and 97 more runs", "100 runs: 100 running"]
    assert len(shown) == 5
    assert len(lines(many, height=1)) == 2


@pytest.mark.parametrize("width", [12, 24, 40])
def test_names_give_way_in_a_narrow_window(width: int) -> None:
    ref = AttemptRef(Address.run("sweep", "name=" + "名前の長い" * 9), 1)
    running = AttemptView(ref=ref, backend="local", state=AttemptState.RUNNING, started_at=NOW)
    (shown,) = lines([running], width)
    assert "…" in shown
    assert shown.endswith("running   0 s")
    assert columns(shown) <= max(width, 4 + 2 + 8 + 2 + 3)
