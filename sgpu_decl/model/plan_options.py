"""How a plan is asked for."""

from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of `plan` and `apply`; globs as the user typed them.
    Unless it `removes`, a plan leaves alone what the file no longer lists. In a `strict` plan,
    warnings are errors."""

    rerun: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    retry_failed: bool = False
    on_active: str | None = None
    destroy: bool = False
    removes: bool = True
    strict: bool = False
