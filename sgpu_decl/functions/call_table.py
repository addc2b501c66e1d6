"""What a sweep of calls returns: a table with a row for each call."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.run_table import RunTable
from sgpu_decl.views.results_table import table_markdown, table_text
from sgpu_decl.views.terminal import count, neutral

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]

R = TypeVar("R")
_MOST_ROWS = 50  # that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow(Generic[R]):
    """One call of a sweep.

    Attributes:
        arguments: what the function was called with.
        attempt: such as `train#8`; None if it could not be launched.
        state: how it ended: `succeeded`, `failed`, `cancelled` or `lost`; None without an attempt.
        seconds: how long its ranks ran; None if they never started.
        result: what `.distributed(...)` would have returned; None after a failure.
        error: what `.distributed(...)` would have raised; None after a success.
    """

    arguments: Mapping[str, object]
    attempt: str | None = None
    state: AttemptState | None = None
    seconds: float | None = None
    result: R | None = None
    error: BaseException | None = None


class CallTable(Sequence[CallRow[R]]):
    """The calls of a sweep, in the order in which they were given. `print` and notebooks show their
    arguments, states, times, what they returned by key, and the last values of their metrics."""

    def __init__(self, rows: Sequence[CallRow[R]], shown: RunTable) -> None:
        self._rows = tuple(rows)
        self._shown = shown

    @property
    def results(self) -> list[R | None]:
        """What each call returned, None for those that failed."""
        return [row.result for row in self._rows]

    @property
    def failed(self) -> tuple[CallRow[R], ...]:
        return tuple(row for row in self._rows if row.error is not None)

    def sorted_by(self, name: str) -> "CallTable[R]":
        """The calls by a column that `print` shows, the lowest first; by `-name` the highest first.
        Calls without a value come last.

        Raises:
            NotFound: there is no such column.
        """
        shown = self._shown.sorted_by(name, datetime.now(UTC))
        by_attempt = {row.attempt: row for row in self._rows}
        rows = [by_attempt[str(row.view.ref)] for row in shown.rows]
        rows += [row for row in self._rows if row.attempt is None]
        return CallTable(rows, shown)

    def to_pandas(self) -> "DataFrame":
        """The table as a `pandas.DataFrame`: a row for each call in its order, with the arguments,
        what was returned by key, the metrics, `attempt`, `state`, `seconds` and `error`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        columns = (*self._shown.axes, *self._shown.returned, *self._shown.metrics)
        values: list[dict[str, object]] = [
            {column.name: column.value(row) for column in columns} for row in self._shown.rows
        ]
        values += [dict(row.arguments) for row in self._rows[len(values) :]]
        more = [
            {"attempt": row.attempt, "state": row.state and str(row.state),
             "seconds": row.seconds, "error": row.error and str(row.error)}
            for row in self._rows
        ]  # fmt: skip
        return pandas.DataFrame([{**one, **other} for one, other in zip(values, more, strict=True)])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> CallRow[R]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[CallRow[R], ...]: ...

    def __getitem__(self, index: int | slice) -> CallRow[R] | tuple[CallRow[R], ...]:
        return self._rows[index]

    def __repr__(self) -> str:
        if not self._rows:
            return "no calls"
        text = table_text(self._first_rows(), now=datetime.now(UTC), colour=False)
        return "\n".join([text, *self._notes()])

    def _repr_markdown_(self) -> str:
        notes = "".join(f"\n- {note}" for note in self._notes())
        return table_markdown(self._first_rows(), now=datetime.now(UTC)) + notes

    def _first_rows(self) -> RunTable:
        return replace(self._shown, rows=self._shown.rows[:_MOST_ROWS])

    def _notes(self) -> Iterator[str]:
        if (more := len(self) - _MOST_ROWS) > 0:
            yield f"and {count(more, 'more call')}"
        for problem in self._shown.problems:
            yield neutral(f"metrics are missing: {problem}")
        for row in self.failed[:_MOST_ROWS]:
            first_line = str(row.error).partition("\n")[0]
            kind = type(row.error).__name__
            yield neutral(f"{row.attempt or 'not launched'}: {kind}: {first_line}")
