"""`pool` on Databricks, and the environment variables that speak where it is silent.

The variables, their order and the default are those of the Serverless GPU Python API: whoever has
access to a reserved pool uses it, everybody else gets GPUs on demand.
"""

from collections.abc import Mapping, Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.pool import FIELD, PoolChoice, PoolKind

__all__ = ["choose_pool"]

# The newest name first: the first that is set counts.
_USE_RESERVED = ("DATABRICKS_USE_RESERVED_GPU_POOL", "DATABRICKS_USE_POOL", "SGC_USE_POOL")
_POOL_ID = ("DATABRICKS_REMOTE_GPU_POOL_ID", "REMOTE_GPU_POOL_ID")
_FLAGS = {
    **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
    **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
}


def choose_pool(
    pool: str | None, environ: Mapping[str, str], *, accessible: Sequence[str] | None = None
) -> tuple[PoolChoice | None, tuple[Diagnostic, ...]]:
    """Say where the GPUs of a run come from.

    Args:
        pool: the field of the run: a pool's id, `reserved`, `on_demand`, or nothing.
        environ: asked only where the field is silent.
        accessible: the ids of the reserved pools that the workspace lets one use, the best first;
            `None` where nobody asked it.

    Returns:
        The choice, `None` where a variable that counts cannot be read, and what is wrong with it.
    """
    flags = _set(_USE_RESERVED, environ)
    ids = _set(_POOL_ID, environ)
    if pool is not None:
        kinds = {str(kind): kind for kind in (PoolKind.RESERVED, PoolKind.ON_DEMAND)}
        kind = kinds.get(pool.strip().lower().replace("-", "_"), PoolKind.NAMED)
        named = pool if kind is PoolKind.NAMED else None
        unused = (*flags, *ids)
        return _settled(kind, named, FIELD, unused, accessible), ()
    flag = next(iter(flags), None)
    wanted = True
    if flag is not None:
        known = _FLAGS.get(flags[flag].lower())
        if known is None:
            return None, (_unreadable(flag, flags[flag]),)
        wanted = known
    older = [name for name, text in flags.items() if _FLAGS.get(text.lower()) is not wanted]
    if not wanted:
        return _settled(PoolKind.ON_DEMAND, None, flag, (*older, *ids), accessible), ()
    if ids:
        name, text = next(iter(ids.items()))
        others = [other for other, its in ids.items() if its != text]
        return _settled(PoolKind.NAMED, text, name, (*older, *others), accessible), ()
    return _settled(PoolKind.RESERVED, None, flag, older, accessible), ()


def _set(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Those that are set; an empty variable is none."""
    texts = {name: environ.get(name, "").strip() for name in names}
    return {name: text for name, text in texts.items() if text}


def _settled(
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
