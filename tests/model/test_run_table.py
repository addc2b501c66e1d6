"""The columns and the order of a table of runs."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from sgpu_decl.errors import NotFound
from sgpu_decl.model.address import Address, cell_values
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_table import RunRow, RunTable

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def row(
    key: str,
    returned: Mapping[str, Json] | None = None,
    metrics: Mapping[str, float] | None = None,
    seconds: float = 1,
) -> RunRow:
    view = AttemptView(
        ref=AttemptRef(Address.run("sweep", key), 1),
        backend="local",
        state=AttemptState.SUCCEEDED,
        started_at=NOW - timedelta(seconds=seconds),
        ended_at=NOW,
    )
    return RunRow(view=view, axes=cell_values(key), returned=returned or {}, metrics=metrics or {})


def keys(table: RunTable) -> list[str]:
    return [row.view.ref.address.key for row in table.rows]


def test_columns_stand_in_the_order_in_which_rows_name_them() -> None:
    table = RunTable(rows=(row("lr=1", {"loss": 2}), row("lr=2", {"acc": 1, "loss": 1})))
    assert [column.name for column in table.returned] == ["loss", "acc"]
    assert table.returned[1].value(table.rows[0]) is None


def test_no_two_columns_have_one_name() -> None:
    first = row("lr=1,state=2", {"lr": 9, "loss": 2, "time": 3}, {"loss": 4, "lr": 5})
    table = RunTable(rows=(first,))
    assert [column.name for column in table.axes] == ["lr", "matrix.state"]
    assert [column.name for column in table.returned] == ["returned.lr", "loss", "returned.time"]
    assert [column.name for column in table.metrics] == ["metrics.loss", "metrics.lr"]
    assert [column.value(first) for column in table.metrics] == [4, 5]


def test_what_a_run_returns_of_its_axes_is_not_shown_twice() -> None:
    table = RunTable(rows=(row("lr=1", {"lr": 1, "loss": 2}), row("lr=2", {"lr": 2, "loss": 1})))
    assert [column.name for column in table.returned] == ["loss"]
    running = RunTable(rows=(*table.rows, row("lr=3")))
    assert [column.name for column in running.returned] == ["returned.lr", "loss"]


def test_rows_are_sorted_by_any_column_and_those_without_a_value_come_last() -> None:
    table = RunTable(
        rows=(
            row("n=1", {"loss": 0.3}, seconds=3),
            row("n=2", {"loss": math.nan}, seconds=2),
            row("n=3", {"loss": 0.1}, seconds=4),
            row("n=4", seconds=1),
            row("n=5", {"loss": "none"}, seconds=5),
        )
    )
    assert keys(table.sorted_by("loss", NOW)) == ["n=3", "n=1", "n=5", "n=2", "n=4"]
    assert keys(table.sorted_by("-loss", NOW)) == ["n=5", "n=1", "n=3", "n=2", "n=4"]
    assert keys(table.sorted_by("time", NOW)) == ["n=4", "n=2", "n=1", "n=3", "n=5"]
    assert keys(table.sorted_by("seconds", NOW)) == keys(table.sorted_by("time", NOW))
    assert keys(table.sorted_by("-n", NOW))[0] == "n=5"
    assert keys(table.sorted_by("-address", NOW))[0] == "n=5"
    for alike in ("run", "attempt"):
        assert keys(table.sorted_by(alike, NOW))[0] == "n=1"


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    table = RunTable(rows=(row("n=1", {"accuracy": 1}),))
    with pytest.raises(NotFound, match="no column `acuracy`") as caught:
        table.sorted_by("-acuracy", NOW)
    assert caught.value.hint == "did you mean `accuracy`?"
    assert caught.value.code == "unknown_column"


def test_numbers_that_no_float_can_hold_are_sorted() -> None:
    table = RunTable(rows=(row("n=1", {"loss": 10**400}), row("n=2", {"loss": 0.5})))
    assert keys(table.sorted_by("loss", NOW)) == ["n=2", "n=1"]
