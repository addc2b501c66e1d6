"""Several attempts as one table: what was varied, and what came of it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import NotFound
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json

SYSTEM_METRICS = "system/"
"""What the names of metrics begin with that MLflow takes of the machine. Text leaves them out."""

_OWN = ("run", "address", "attempt", "state", "time", "seconds")
"""Names of columns that every table has, in one format or another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadResults:
    """Why nobody can read here what the ranks of an attempt returned, and the next step."""

    reason: str
    way_out: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One attempt. `axes` are the values of a cell of a matrix, `returned` what the lowest rank
    that returned anything did, by its keys (`value` for what is no mapping), `metrics` the last
    value of each metric of its MLflow run, and of its `metrics.json`. `with_secrets` are the
    results of ranks that hold values of secrets. If `unread` is set, `returned` says nothing."""

    view: AttemptView
    axes: Mapping[str, Json]
    returned: Mapping[str, Json]
    metrics: Mapping[str, float]
    with_secrets: tuple[Mapping[str, Json], ...] = ()
    unread: UnreadResults | None = None

    def seconds(self, now: datetime) -> float | None:
        """How long it took, or takes until `now`."""
        return self.view.seconds(now)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of values: its name, unique in the table, and the value that a row has there."""

    name: str
    value: Callable[[RunRow], Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTable:
    """`problems` says which metrics are missing, and why."""

    rows: tuple[RunRow, ...]
    problems: tuple[str, ...] = ()

    def __repr__(self) -> str:
        columns = (*self.axes, *self.returned, *self.metrics)
        return f"<RunTable: {len(self.rows)} runs; {', '.join(one.name for one in columns)}>"

    @property
    def axes(self) -> tuple[TableColumn, ...]:
        """An axis whose name is that of a column of ours is called `matrix.<name>`."""
        given = [row.axes for row in self.rows]
        return tuple(_columns("matrix", given, _OWN, lambda row: row.axes))

    @property
    def returned(self) -> tuple[TableColumn, ...]:
        """A key that an axis has too is called `returned.<key>`, and left out where every row has
        the value of its axis."""
        repeated = {
            key
            for row in self.rows
            for key in row.axes
            if all(
                one.unread or one.returned.get(key, ...) == one.axes.get(key) for one in self.rows
            )
        }
        taken = [*_OWN, *(column.name for column in self.axes)]
        given = [
            {key: value for key, value in row.returned.items() if key not in repeated}
            for row in self.rows
        ]
        return tuple(_columns("returned", given, taken, lambda row: row.returned))

    @property
    def metrics(self) -> tuple[TableColumn, ...]:
        """A metric that an axis or a returned value is called like is `metrics.<name>`."""
        taken = [*_OWN, *(column.name for column in (*self.axes, *self.returned))]
        given = [row.metrics for row in self.rows]
        return tuple(_columns("metrics", given, taken, lambda row: row.metrics))

    def sorted_by(self, name: str, now: datetime) -> "RunTable":
        """The rows by a column, the lowest first; by `-name` the highest first. Rows without a
        value, or with NaN, come last.

        Raises:
            NotFound: there is no such column.
        """
        descending = name.startswith("-")
        column = self._column(name.removeprefix("-"), now)
        keyed = [(_sort_key(column.value(row)), row) for row in self.rows]
        known = [(key, row) for key, row in keyed if key is not None]
        known.sort(key=lambda pair: pair[0], reverse=descending)
        rest = [row for key, row in keyed if key is None]
        return RunTable(rows=(*(row for _, row in known), *rest), problems=self.problems)

    def _column(self, name: str, now: datetime) -> TableColumn:
        columns = (
            *self.axes,
            *self.returned,
            *self.metrics,
            TableColumn("run", lambda row: row.view.ref.address.name),
            TableColumn("address", lambda row: str(row.view.ref.address)),
            TableColumn("attempt", lambda row: row.view.ref.number),
            TableColumn("state", lambda row: str(row.view.state)),
            TableColumn("time", lambda row: row.seconds(now)),
            TableColumn("seconds", lambda row: row.seconds(now)),
        )
        for column in columns:
            if column.name == name:
                return column
        names = [column.name for column in columns]
        close = nearest(name, names)
        listed = ", ".join(f"`{one}`" for one in names)
        raise NotFound(
            f"the table has no column `{name}`",
            hint=f"did you mean `{close}`?" if close else f"its columns are {listed}",
            code="unknown_column",
        )


def _columns(
    group: str,
    given: Sequence[Mapping[str, Json]],
    taken: Sequence[str],
    of: Callable[[RunRow], Mapping[str, Json]],
) -> Iterator[TableColumn]:
    """One column for each key, in the order in which rows name them first."""

    def column(key: str) -> TableColumn:
        name = f"{group}.{key}" if key in taken else key
        return TableColumn(name, lambda row: of(row).get(key))

    return map(column, dict.fromkeys(key for values in given for key in values))


def _sort_key(value: Json) -> tuple[int, float | str] | None:
    """Numbers before text; None for what has no order."""
    if isinstance(value, int | float):
        return None if isinstance(value, float) and math.isnan(value) else (0, value)
    return (1, value) if isinstance(value, str) else None
