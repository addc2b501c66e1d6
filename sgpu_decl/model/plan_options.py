"""How a plan is asked for."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.argument_checks import checked_fields

ON_ACTIVE = ("error", "replace", "queue", "parallel")
"""What can be done with a changed run that is still active."""


@checked_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of `plan` and `apply`; globs as the user typed them.
    Unless it `removes`, a plan leaves alone what the file no longer lists. In a `strict` plan,
    warnings are errors. With `heal`, it relaunches runs that a person cancelled."""

    rerun: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    retry_failed: bool = False
    heal: bool = False
    on_active: str | None = None
    destroy: bool = False
    removes: bool = True
    strict: bool = False

    if TYPE_CHECKING:  # what `checked_fields` takes

        def __init__(
            self,
            *,
            rerun: Iterable[str] = ...,
            select: Iterable[str] = ...,
            exclude: Iterable[str] = ...,
            retry_failed: bool = ...,
            heal: bool = ...,
            on_active: str | None = ...,
            destroy: bool = ...,
            removes: bool = ...,
            strict: bool = ...,
        ) -> None: ...
