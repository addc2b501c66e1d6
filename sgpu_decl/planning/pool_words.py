"""Where the GPUs of what is launched come from, in words."""

from collections.abc import Sequence

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.plan import Check
from sgpu_decl.model.pool import FIELD, PoolChoice, PoolKind
from sgpu_decl.planning.unsupported_fields import place_of

__all__ = ["pool_checks"]


def pool_checks(launched: Sequence[Desired]) -> tuple[Check, ...]:
    """Return one check for each choice, with the first run that it holds for; with none where it
    holds for all."""
    first: dict[PoolChoice, Desired] = {}
    for wanted in launched:
        if wanted.pool is not None:
            first.setdefault(wanted.pool, wanted)
    alone = len(first) == 1 and all(wanted.pool is not None for wanted in launched)
    return tuple(
        Check(
            id="pool",
            severity=Severity.INFO,
            address=None if alone else wanted.address,
            summary=_words(choice),
            hint=_hint(choice),
            place=place_of(wanted.places, FIELD) if choice.decided_by == FIELD else None,
        )
        for choice, wanted in first.items()
    )


def _words(choice: PoolChoice) -> str:
    match choice.kind:
        case PoolKind.NAMED:
            words = f"GPUs come from the pool `{choice.pool}`"
        case PoolKind.RESERVED if choice.pool is not None:
            words = f"GPUs come from the reserved pool `{choice.pool}`"
        case PoolKind.RESERVED:
            words = "GPUs come from a reserved pool if one is accessible, else on demand"
        case PoolKind.ON_DEMAND:
            words = "GPUs come on demand"
            words += ", since no reserved pool is accessible" if choice.denied else ""
    return words if choice.decided_by is None else f"{words}, as `{choice.decided_by}` asks"


def _hint(choice: PoolChoice) -> str | None:
    if choice.unused:
        names = ", ".join(f"`{name}`" for name in choice.unused)
        return f"{names} {'says' if len(choice.unused) == 1 else 'say'} otherwise: not used"
    if choice.decided_by in (None, FIELD):
        return None
    written = choice.pool if choice.kind is PoolKind.NAMED else str(choice.kind)
    return f"it holds for this shell alone; `pool: {written}` is part of the run"
