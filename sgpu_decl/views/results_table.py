"""What ranks returned: in words, and of several attempts as a table (text, Markdown, CSV, JSON)."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.run_table import SYSTEM_METRICS, RunRow, RunTable, TableColumn
from sgpu_decl.views.markdown import cell, code, prose
from sgpu_decl.views.status_json import attempt_object
from sgpu_decl.views.status_text import state_text, tally
from sgpu_decl.views.terminal import columns, count, escape, json_text, shorten

_REASONS = 5
_UNREAD = "?"
_WIDEST = 32  # columns of one value
_SHOWN = 5


def table_text(table: RunTable, *, now: datetime, colour: bool) -> str:
    """The table for a terminal, and how many runs are in which state."""
    header, rows = table_cells(table, now)
    shown = [[shorten(escape(text), _WIDEST) for text in row] for row in (header, *rows)]
    widths = [max(columns(row[index]) for row in shown) for index in range(len(header))]
    state = header.index("state")
    lines = []
    for number, row in enumerate(shown):
        padded = [
            text + " " * (width - columns(text)) for text, width in zip(row, widths, strict=True)
        ]
        if number:
            padded[state] = state_text(padded[state], colour=colour)
        lines.append("  ".join(padded).rstrip())
    counted = tally([row.view.state_word for row in table.rows])
    return "\n".join([*lines, "", counted, *map(escape, unread_lines(table))])


def table_markdown(table: RunTable, *, now: datetime) -> str:
    """The table for a comment on a pull request, ended by a newline."""
    header, rows = table_cells(table, now)
    lines = [
        "| " + " | ".join(cell(prose(name)) for name in header) + " |",
        "|" + "---|" * len(header),
        *(
            "| " + " | ".join(cell(code(text)) if text else "" for text in row) + " |"
            for row in rows
        ),
    ]
    unread = unread_lines(table)
    lines += ["", *(f"- {prose(line)}" for line in unread)] if unread else []
    return "\n".join(lines) + "\n"


def unread_lines(table: RunTable) -> list[str]:
    """Which results could not be read, and why: each reason, and the next step for the first."""
    unread = [row.unread for row in table.rows if row.unread is not None]
    lines = [one.reason for one in unread[:_REASONS]]
    if (more := len(unread) - _REASONS) > 0:
        lines.append(f"what {count(more, 'more run')} returned cannot be read either")
    way_out = next((one.way_out for one in unread if one.way_out), None)
    return [*lines, f"hint: {way_out}"] if way_out else lines


def table_csv(table: RunTable, *, now: datetime) -> str:
    """All values as they are, with `seconds` in the place of the time, ended by a newline."""
    values = (*table.returned, *table.metrics)
    names = ["address", "attempt", *_names(table.axes), "state", "seconds", *_names(values)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in table.rows:
        seconds = row.seconds(now)
        writer.writerow(
            [
                row.view.ref.address,
                row.view.ref.number,
                *(_plain(column.value(row)) for column in table.axes),
                row.view.state,
                "" if seconds is None else round(seconds, 3),
                *(_plain(column.value(row)) for column in values),
            ]
        )
    return text.getvalue()


def table_json(table: RunTable, *, now: datetime) -> dict[str, Json]:
    """`{"runs": [...]}`, in the order of the table."""
    return {"runs": [_object(row, now) for row in table.rows]}


def _object(row: RunRow, now: datetime) -> Json:
    view, seconds = row.view, row.seconds(now)
    return {
        **attempt_object(view),
        "seconds": None if seconds is None else round(seconds, 3),
        "axes": row.axes,
        "returned": row.returned,
        "unread": None if row.unread is None else row.unread.reason,
        "secrets": [*secret_references(row.with_secrets)],
        "metrics": to_json(row.metrics),
    }


def table_cells(table: RunTable, now: datetime) -> tuple[list[str], list[list[str]]]:
    """The header and the rows for people. A run's name is shown unless all are cells of one
    matrix."""
    one_matrix = len({row.view.ref.address.name for row in table.rows}) == 1 and all(
        row.axes for row in table.rows
    )
    name = TableColumn("run", lambda row: row.view.ref.address.name)
    own = [*(() if one_matrix else (name,)), *table.axes]
    metrics = [column for column in table.metrics if not column.name.startswith(SYSTEM_METRICS)]
    values = [*map(_marked, table.returned), *metrics]
    header = [*_names(own), "attempt", "state", "time", *_names(values)]
    return header, [list(_row(row, own, values, now)) for row in table.rows]


def _row(
    row: RunRow, own: Sequence[TableColumn], values: Sequence[TableColumn], now: datetime
) -> Iterator[str]:
    yield from (_brief(column.value(row)) for column in own)
    yield f"#{row.view.ref.number}"
    yield row.view.state_word
    seconds = row.seconds(now)
    yield "-" if seconds is None else duration(seconds)
    yield from (_brief(column.value(row)) for column in values)


def _marked(column: TableColumn) -> TableColumn:
    """A column of returned values for people."""
    return TableColumn(column.name, lambda row: _UNREAD if row.unread else column.value(row))


def _names(of: Sequence[TableColumn]) -> list[str]:
    return [column.name for column in of]


def _brief(value: Json) -> str:
    """A value in a table for people: numbers with six digits that count."""
    return f"{value:.6g}" if isinstance(value, float) else _plain(value)


def _plain(value: Json) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float):
        return repr(value)  # NaN too
    return canonical(value)


def result_text(value: Json) -> str:
    """What a rank returned: JSON, or the text of Python for what JSON would change, such as a
    tuple."""
    if isinstance(value, Mapping) and value.keys() == {"pickle", "repr"}:
        return escape(str(value["repr"]))
    return json_text(value)


def secret_references(results: Sequence[Mapping[str, Json]]) -> list[str]:
    """The references of the secrets whose values stand in results."""
    return sorted({str(name) for result in results for name in _listed(result.get("secrets"))})


def secrets_note(ref: AttemptRef, results: Sequence[Mapping[str, Json]]) -> str | None:
    """Say which results hold values of secrets, None where none does."""
    ranks = [str(result["rank"]) for result in results if result.get("secrets")]
    if not ranks:
        return None
    names = ", ".join(f"`{escape(name)}`" for name in secret_references(results))
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_some(ranks)}"
    return (
        f"warning: what {who} of `{escape(str(ref))}` returned holds the value of a secret "
        f"({names}): `output.json` or `output.pkl` of the rank keeps it in clear"
    )


def table_secrets_note(rows: Sequence[RunRow]) -> str | None:
    """Say once for a table which results hold values of secrets, None where none does."""
    marked = [row for row in rows if row.with_secrets]
    if len(marked) < 2:
        return secrets_note(marked[0].view.ref, marked[0].with_secrets) if marked else None
    references = secret_references([item for row in marked for item in row.with_secrets])
    names = ", ".join(f"`{escape(name)}`" for name in references)
    refs = _some([f"`{escape(str(row.view.ref))}`" for row in marked])
    return (
        f"warning: what {len(marked):,} runs returned holds values of secrets ({names}): "
        f"`output.json` or `output.pkl` of their ranks keeps them in clear: {refs}"
    )


def _some(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _listed(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()
