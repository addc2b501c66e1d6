"""Where a call stands, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.jsonable import Json

__all__ = ["RunStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """`state` is one of `queued staging starting running stopping succeeded failed cancelled lost`;
    `run` is all that is known, as `sgpu status -o json` has it."""

    run_id: str
    state: AttemptState
    run: Mapping[str, Json]

    @property
    def active(self) -> bool:
        return self.state.active

    def __str__(self) -> str:
        return f"{self.run_id} {self.state}"

    def _repr_html_(self) -> str:
        from sgpu_decl.views.status_html import render

        return render(self.run)
