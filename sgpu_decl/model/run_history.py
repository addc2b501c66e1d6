"""One attempt of a run, with the history of the run."""

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.canonical_spec import Spec
from sgpu_decl.model.state import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """One attempt of a run with the spec that was launched, and all attempts of the run, each as it
    is recorded and as its backend sees it now. `owner` is the file that declares the run."""

    view: AttemptView
    spec: Spec
    attempts: tuple[tuple[Attempt, AttemptView], ...]
    owner: str = ""
