"""What a call returns: a list in rank order of what its ranks returned, or what the driver of a Ray
cluster returned; of a sweep, a table with a row for each call."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from sgpu_decl.errors import SgpuError
from sgpu_decl.functions.call_errors import RankFailed, raise_failure
from sgpu_decl.functions.call_follower import say
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_table import RunTable
from sgpu_decl.views.notebook_html import results_page
from sgpu_decl.views.results_table import secrets_note, table_markdown, table_text
from sgpu_decl.views.terminal import count, neutral

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]

    from sgpu_decl.api import Session

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


class Results(list[R]):
    """The value that each rank returned, in rank order; a notebook shows them as a table.

    Attributes:
        attempt: such as `train#8`.
    """

    def __init__(
        self,
        values: Iterable[R] = (),
        *,
        attempt: str = "",
        masked: Mapping[int, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(values)
        self.attempt = attempt
        self._masked = dict(masked)  # what is shown instead, by rank

    def _repr_html_(self) -> str:
        readable = [self._masked.get(rank, value) for rank, value in enumerate(self)]
        return results_page(readable, title=self.attempt)


def result_or_raise(session: "Session", view: AttemptView) -> object:
    """Return what a call that has ended returned: `Results`, or of a Ray program the value of its
    driver.

    Raises:
        BaseException: a rank's exception; see `call_errors.raise_failure`.
        RankFailed: the attempt failed otherwise, or a rank ended without returning.
        SgpuError: a value cannot be unpickled here.
    """
    if view.state is not AttemptState.SUCCEEDED:
        raise_failure(session, view)
    ref, size = view.ref, len(view.ranks)
    returned = session.runs.returned(ref)
    if note := secrets_note(ref, returned):
        say(note)
    by_rank = {entry["rank"]: entry for entry in returned}
    for rank in range(size):
        if rank not in by_rank:
            raise RankFailed(
                f"rank {rank} of `{ref}` ended without returning",
                hint="let the function return: `os._exit` ends a rank at once",
                attempt=str(ref),
                rank=rank,
            )
    values = [_value(ref, rank, by_rank[rank]) for rank in range(size)]
    masked = {rank: by_rank[rank]["shown"] for rank in range(size) if "shown" in by_rank[rank]}
    if "ray" in session.runs.record(ref).inputs.spec.fields:
        (value,) = values  # one driver, whatever the number of nodes
        return value
    return Results(values, attempt=str(ref), masked=masked)


def _value(ref: AttemptRef, rank: int, result: Mapping[str, Json]) -> object:
    value = result["value"]
    if not (isinstance(value, Mapping) and value.keys() == {"pickle", "repr"}):
        return value
    path = str(value["pickle"])
    try:
        with open(path, "rb") as file:
            return pickle.load(file)  # noqa: S301  from our own ranks, in a folder of ours
    except Exception as error:
        raise SgpuError(
            f"what rank {rank} of `{ref}` returned cannot be unpickled here: "
            f"{type(error).__name__}: {error}",
            hint=f"it is `{_described(result)}`, kept in `{path}`",
            code="result_unreadable",
        ) from error


def _described(result: Mapping[str, Json]) -> Json:
    readable = result.get("shown", result["value"])
    return readable["repr"] if isinstance(readable, Mapping) else readable
