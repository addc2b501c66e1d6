"""What a backend is opened with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sgpu_decl.backends.attempt_layout import AttemptLayout

if TYPE_CHECKING:
    from sgpu_decl.code.code_store import CodeStore
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.environments.environment_store import EnvironmentStore
    from sgpu_decl.environments.interpreters import Pythons
    from sgpu_decl.model.state_mark import StateMark

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """One project and target. The stores of pinned code and of environments are opened where one
    is used; `pythons` gives the finder of interpreters, `shared_state` says whether other machines
    have the same state. `lineage` gives that of the state which was read last; None before the
    first. `backend_blocks` are the `backend` blocks that the project's file and the file of an
    `owner`, relative to the project, have for the target: what the user of this checkout reads.
    `mark` gives what says whose state has a lineage. `for_apply` says whether what is planned is
    applied at once, so that cached answers about room and limits do not count."""

    project: Path
    state_dir: Path
    store: "Callable[[], CodeStore]"
    environments: "Callable[[], EnvironmentStore]"
    pythons: "Callable[[], Pythons]"
    shared_state: Callable[[], bool] = lambda: False
    lineage: "Callable[[], str | None]" = lambda: None
    backend_blocks: "Callable[[str], tuple[BackendOptions, ...]]" = lambda _: ()

    mark: "Callable[[str], StateMark | None]" = lambda _: None
    for_apply: Callable[[], bool] = lambda: False

    _shared: dict[type, Any] = field(default_factory=dict, repr=False, compare=False)

    def shared(self, kind: type[_T]) -> _T:
        """The one object of a class that takes no arguments: the survey and the backend of a kind
        share it, whichever of them is opened first."""
        if kind not in self._shared:
            self._shared[kind] = kind()
        found: _T = self._shared[kind]
        return found

    @property
    def layout(self) -> AttemptLayout:
        """Where what belongs to attempts lies on this machine."""
        return AttemptLayout(self.state_dir)
