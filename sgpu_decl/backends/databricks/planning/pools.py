"""`pool` on Databricks, and the environment variables that speak where it is silent.

The variables, their order and the default are those of the Serverless GPU Python API: users with
access to a reserved pool use it, all others get GPUs on demand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sgpu_decl.backends.databricks.planning.catalog import ReservedPool
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import Placement

_FIELD = "pool"  # of a run

# The newest name first: the first that is set counts.
_USE_RESERVED = ("DATABRICKS_USE_RESERVED_GPU_POOL", "DATABRICKS_USE_POOL", "SGC_USE_POOL")
_POOL_ID = ("DATABRICKS_REMOTE_GPU_POOL_ID", "REMOTE_GPU_POOL_ID")
_FLAGS = {
    **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
    **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
}


class PoolKind(StrEnum):
    NAMED = "named"
    RESERVED = "reserved"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """Where the GPUs of a run come from, and what decided it.

    Attributes:
        pool: the id of the named pool, or of the reserved one where it is known.
        decided_by: `pool`, or the environment variable that decided; `None` for the default.
        denied: a reserved pool was asked for, and none is accessible: it is on demand for that.
        unused: the environment variables that say something else and do not count.
    """

    kind: PoolKind
    pool: str | None = None
    decided_by: str | None = None
    denied: bool = False
    unused: tuple[str, ...] = ()

    @property
    def placement(self) -> Placement:
        return Placement(
            id=self.pool,
            note=Diagnostic(
                code="pool", severity=Severity.INFO, summary=_words(self), hint=_hint(self)
            ),
            field=_FIELD if self.decided_by == _FIELD else None,
        )

    def check(
        self, host: str, pools: Sequence[ReservedPool] | None, places: Mapping[str, Place]
    ) -> Iterator[Diagnostic]:
        """Whether the workspace has the pool that a run names.

        Args:
            pools: those that it has; `None` where it does not say.
        """
        if self.kind is not PoolKind.NAMED or pools is None:
            return
        ids = [item.id for item in pools]
        if self.pool in ids:
            return
        listed = ", ".join(f"`{item}`" for item in ids)
        yield Diagnostic(
            code="unknown_pool",
            summary=f"`{host}` has no pool `{self.pool}`",
            place=places.get(_FIELD),
            hint=f"it has {listed}" if listed else "it has none: use `pool: on_demand`",
        )


def check_priority(config: RunConfig, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
    """Whether a run with a priority names the pool that the priority is for."""
    if config.priority is not None and config.pool is None:
        yield Diagnostic(
            code="priority_without_pool",
            summary="`priority` counts inside of a pool, and the run names none",
            place=places.get("priority"),
            hint="add `pool`, or leave `priority` out",
        )


def choose_pool(
    config: RunConfig, environ: Mapping[str, str], *, accessible: Sequence[str] | None = None
) -> tuple[PoolChoice | None, tuple[Diagnostic, ...]]:
    """Say where the GPUs of a run come from.

    Args:
        config: its `pool` is the id of one, `reserved`, `on_demand`, or nothing.
        environ: asked only where the config says nothing.
        accessible: the ids of the reserved pools that the workspace lets one use, the best first;
            `None` if it was not asked.

    Returns:
        The choice, `None` where a variable that counts cannot be read, and what is wrong with it.
    """
    flags = _set(_USE_RESERVED, environ)
    ids = _set(_POOL_ID, environ)
    pool = config.pool
    if pool is not None:
        kinds = {str(kind): kind for kind in (PoolKind.RESERVED, PoolKind.ON_DEMAND)}
        kind = kinds.get(pool.strip().lower().replace("-", "_"), PoolKind.NAMED)
        named = pool if kind is PoolKind.NAMED else None
        unused = (*flags, *ids)
        return _choice(kind, named, _FIELD, unused, accessible), ()
    flag = next(iter(flags), None)
    reserved = True if flag is None else _FLAGS.get(flags[flag].lower())
    if flag is not None and reserved is None:
        return None, (_unreadable(flag, flags[flag]),)
    older = [name for name, text in flags.items() if _FLAGS.get(text.lower()) is not reserved]
    if not reserved:
        return _choice(PoolKind.ON_DEMAND, None, flag, (*older, *ids), accessible), ()
    if ids:
        name, text = next(iter(ids.items()))
        others = [other for other, its in ids.items() if its != text]
        return _choice(PoolKind.NAMED, text, name, (*older, *others), accessible), ()
    return _choice(PoolKind.RESERVED, None, flag, older, accessible), ()


def _set(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set; an empty one counts as unset."""
    texts = {name: environ.get(name, "").strip() for name in names}
    return {name: text for name, text in texts.items() if text}


def _choice(
    kind: PoolKind,
    pool: str | None,
    decided_by: str | None,
    unused: Sequence[str],
    accessible: Sequence[str] | None,
) -> PoolChoice:
    denied = False
    if kind is PoolKind.RESERVED and accessible is not None:
        denied, pool = not accessible, next(iter(accessible), None)
    return PoolChoice(
        kind=PoolKind.ON_DEMAND if denied else kind,
        pool=pool,
        decided_by=decided_by,
        denied=denied,
        unused=tuple(unused),
    )


def _unreadable(name: str, text: str) -> Diagnostic:
    shown = text if len(text) <= 40 else text[:37] + "…"
    return Diagnostic(
        code="bad_pool_variable",
        summary=f"the environment variable `{name}` must be true or false, not `{shown}`",
        hint="`true` takes a reserved pool if one is accessible, `false` takes GPUs on demand; "
        "`pool` of the run wins over both",
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
    if choice.decided_by in (None, _FIELD):
        return None
    written = choice.pool if choice.kind is PoolKind.NAMED else str(choice.kind)
    return f"it holds for this shell alone; `pool: {written}` is part of the run"
