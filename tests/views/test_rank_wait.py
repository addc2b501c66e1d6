"""For whom ranks wait, in `status`, `show`, `top` and JSON."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_details import RankWait, rank_wait_in
from sgpu_decl.model.attempt_view import AttemptView, status_fields
from sgpu_decl.model.rank_activity import WatchedRun
from sgpu_decl.views.status_text import status_table
from sgpu_decl.views.top_frame import run_frame

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SAID = "rank 2 has not entered all_reduce #4 (train.py:9); 2 ranks wait there for 1 m 5 s"
WRITTEN: dict[str, Any] = {
    "kind": "missing", "summary": SAID, "alarm": True, "ranks": [2], "waiting": [0, 1],
    "seconds": 65,
}  # fmt: skip
VIEW = AttemptView(
    ref=AttemptRef(address=Address.parse("run.train"), number=3),
    backend="local",
    state=AttemptState.RUNNING,
    started_at=NOW,
    rank_wait=rank_wait_in(WRITTEN),
)


def test_it_is_written_as_it_was_read() -> None:
    assert isinstance(VIEW.rank_wait, RankWait)
    assert status_fields(VIEW)["rank_wait"] == WRITTEN


def test_top_shows_a_hang_in_red_and_information_in_yellow() -> None:
    assert VIEW.rank_wait is not None
    for alarm, style in ((True, "red"), (False, "yellow")):
        view = replace(VIEW, rank_wait=replace(VIEW.rank_wait, alarm=alarm))
        lines = run_frame(WatchedRun(view=view, gpus=3, gpu_type="H100"), now=NOW, width=100)
        (line,) = (line for line in lines if SAID in line.plain)
        assert line.style == style


def test_a_row_of_status_names_the_rank() -> None:
    table = status_table([VIEW], now=NOW, colour=False)
    assert "rank 2 has not entered all_reduce #4 (train.py:9)" in table
    ended = replace(VIEW, state=AttemptState.SUCCEEDED)
    assert "has not entered" not in status_table([ended], now=NOW, colour=False)


@pytest.mark.parametrize(
    "damage",
    [{"summary": 3}, {"kind": None}, {"seconds": "x"}, {"ranks": 2}, {"waiting": ["0"]}],
)
def test_what_is_damaged_is_not_shown(damage: dict[str, Any]) -> None:
    assert rank_wait_in({**WRITTEN, **damage}) is None
    assert rank_wait_in([WRITTEN]) is None
