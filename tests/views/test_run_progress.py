"""How far a run is, in words, in a table, in a notebook and on a pull request."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_details import RunProgress, progress_in
from sgpu_decl.model.attempt_view import AttemptView, status_fields
from sgpu_decl.views.followed_runs import progress as followed
from sgpu_decl.views.notebook_html import status_page
from sgpu_decl.views.run_progress_text import progress_words
from sgpu_decl.views.status_text import status_table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOING: dict[str, Any] = {
    "step": 1200, "total": 3000, "unit": "step", "percent": 40.0, "per_second": 0.789,
    "seconds_left": 2280, "metrics": {"lr": 0.1, "loss": 1.8312}, "source": "trainer",
}  # fmt: skip
WORDS = "step 1,200 of 3,000, 40 %, 38 m left, loss 1.831"


def going(**changes: Any) -> RunProgress:
    progress = progress_in({**GOING, **changes})
    assert progress is not None
    return progress


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, WORDS),
        ({"seconds_left": None}, "step 1,200 of 3,000, 40 %, loss 1.831"),
        ({"metrics": {"loss": None}}, "step 1,200 of 3,000, 40 %, 38 m left"),
        (
            {"total": None, "percent": None, "seconds_left": None, "metrics": {}},
            "step 1,200, 47 steps a minute",
        ),
        (
            {"total": None, "percent": None, "seconds_left": None, "per_second": 12.5},
            "step 1,200, 12.5 steps a second, loss 1.831",
        ),
        ({"unit": "percent", "step": 40, "total": 100}, "40 %, 38 m left, loss 1.831"),
        ({"unit": "epoch", "step": 3, "total": 10, "percent": 30.0, "metrics": {}},
         "epoch 3 of 10, 30 %, 38 m left"),
        ({"metrics": {"train_loss": 2.0}}, "step 1,200 of 3,000, 40 %, 38 m left, train_loss 2"),
    ],
)  # fmt: skip
def test_what_is_known_is_said(changes: dict[str, Any], words: str) -> None:
    assert progress_words(going(**changes)) == words


def test_nothing_is_left_of_a_run_that_has_ended() -> None:
    assert progress_words(going(), ended=True) == "step 1,200 of 3,000, 40 %, loss 1.831"


@pytest.fixture
def view() -> AttemptView:
    ref = AttemptRef(Address.parse("run.train"), 1)
    return AttemptView(
        ref=ref, backend="local", state=AttemptState.RUNNING, started_at=NOW, progress=going()
    )


def test_it_stands_in_the_table_while_the_run_is_active(view: AttemptView) -> None:
    assert WORDS in status_table([view], now=NOW, colour=False)
    ended = replace(view, state=AttemptState.SUCCEEDED, ended_at=NOW)
    assert "step" not in status_table([ended], now=NOW, colour=False)


def test_it_stands_at_the_bottom_of_an_apply(view: AttemptView) -> None:
    assert followed([view], now=NOW, width=100, height=24).plain.endswith(WORDS)


def test_a_notebook_shows_a_bar(view: AttemptView) -> None:
    page = status_page(view, now=NOW)
    assert f'<progress max="100" value="40"></progress> {WORDS}' in page


def test_the_json_reads_back(view: AttemptView) -> None:
    written = status_fields(view)
    assert written["progress"] == GOING
    assert progress_in(written["progress"]) == view.progress


def test_an_attempt_that_tells_nothing_has_no_progress(view: AttemptView) -> None:
    assert "progress" not in status_fields(replace(view, progress=None))


@pytest.mark.parametrize(
    "told",
    [
        None, [], "half", {}, {"step": "1"}, {**GOING, "total": "many"}, {**GOING, "unit": 5},
        {**GOING, "metrics": [1]}, {**GOING, "metrics": {"loss": "low"}}, {**GOING, "percent": {}},
    ],
)  # fmt: skip
def test_what_is_no_progress_is_none(told: object) -> None:
    assert progress_in(told) is None
