"""What ranks returned, in words."""

from collections.abc import Mapping, Sequence

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_table import RunRow
from sgpu_decl.views.terminal import escape

_SHOWN = 5


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
