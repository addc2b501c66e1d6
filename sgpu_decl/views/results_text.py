"""What ranks returned, in words."""

from collections.abc import Mapping, Sequence

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.terminal import escape

__all__ = ["secret_references", "secrets_note"]


def secret_references(results: Sequence[Mapping[str, Json]]) -> list[str]:
    """The references of the secrets whose values stand in results."""
    return sorted({str(name) for result in results for name in _listed(result.get("secrets"))})


def secrets_note(ref: AttemptRef, results: Sequence[Mapping[str, Json]]) -> str | None:
    """Say which results hold values of secrets, None where none does."""
    ranks = [str(result["rank"]) for result in results if result.get("secrets")]
    if not ranks:
        return None
    names = ", ".join(f"`{escape(name)}`" for name in secret_references(results))
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks[:5])}"
    more = f" and {len(ranks) - 5} more" if len(ranks) > 5 else ""
    return (
        f"warning: what {who}{more} of `{escape(str(ref))}` returned holds the value of a secret "
        f"({names}): `output.json` or `output.pkl` of the rank keeps it in clear"
    )


def _listed(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()
