"""The errors that are no mistakes in a user's file.

    SgpuError                 exit 1
    ├── InvalidInput          exit 1   has the diagnostics of the user's input
    ├── NotFound              exit 1   an address, attempt or file that does not exist
    ├── StateError            exit 1   the state database is corrupt, newer, or another program's
    ├── BackendError          exit 1   a backend refused or broke
    │   └── OutcomeUnknown    exit 1   the answer to a request was lost: it may have taken effect
    ├── ActiveRun             exit 1   a run is active, and `on_active` forbids to change it
    ├── StalePlan             exit 3   the plan does not fit the state or the code any more
    │   └── StateMoved        exit 3   the state moved on since the plan
    ├── OtherProject          exit 3   the shared state belongs to another project
    ├── Locked                exit 3   another sgpu holds the state lock
    ├── RankUnknown           exit 1   a process cannot tell which rank it is
    ├── OutOfTime             exit 1   a run did not end within the time limit
    ├── RunFailed             exit 5   a watched run failed
    ├── Usage                 exit 64  wrong use of the command line
    └── Interrupted           exit 130

Bad input inside pure rooms is never raised: it is returned as diagnostics.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpu_decl.diagnostics.diagnostic import Diagnostic

__all__ = [
    "ActiveRun",
    "BackendError",
    "Interrupted",
    "InvalidInput",
    "Locked",
    "NotFound",
    "OtherProject",
    "OutOfTime",
    "OutcomeUnknown",
    "RankUnknown",
    "RunFailed",
    "SgpuError",
    "StalePlan",
    "StateError",
    "StateMoved",
    "Usage",
]


class SgpuError(Exception):
    """`message` names the cause, `hint` the next step; `code` is stable and for programs."""

    code = "error"
    exit_code = 1
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        diagnostics: "tuple[Diagnostic, ...]" = (),
    ) -> None:
        super().__init__(message)
        if hint is not None:
            self.add_note(f"hint: {hint}")  # shown in tracebacks
        self.message = message
        self.hint = hint
        self.diagnostics = diagnostics
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """The message, then a line for each finding that it does not hold: a notebook or a logger
        shows nothing else."""
        shown = (str(one) for one in self.diagnostics if one.summary not in self.message)
        return "\n".join((self.message, *shown))

    def _render_traceback_(self) -> list[str]:
        """Called by IPython, which shows the result: only the lines of the user's program."""
        import sys

        from sgpu_decl.caller_traceback import caller_traceback

        trace = caller_traceback(self.__traceback__)
        formatter = sys.modules["IPython"].get_ipython().InteractiveTB
        return list(formatter.structured_traceback(type(self), self, trace, tb_offset=1))


class InvalidInput(SgpuError):
    code = "invalid_input"


class NotFound(SgpuError):
    code = "not_found"


class StateError(SgpuError):
    code = "state_unusable"


class BackendError(SgpuError):
    """`asked_wrong`: the platform works, and refuses the request. `field` is the field of a run or
    notebook that names something which the platform does not have: the file is wrong then."""

    code = "backend_error"
    asked_wrong = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.field = field


class OutcomeUnknown(BackendError):
    """The answer to a request was lost: the request may have taken effect."""

    code = "outcome_unknown"
    retryable = True


class ActiveRun(SgpuError):
    code = "active_run"


class StalePlan(SgpuError):
    code = "stale_plan"
    exit_code = 3


class StateMoved(StalePlan):
    """Another sgpu changed the state after the plan was made: a new plan may fit."""

    retryable = True


class OtherProject(SgpuError):
    code = "other_project"
    exit_code = 3


class Locked(SgpuError):
    """`lock` is the id of the lock that another sgpu holds, if it is known."""

    code = "state_locked"
    exit_code = 3
    retryable = True

    def __init__(
        self, message: str, *, hint: str, code: str | None = None, lock: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.lock = lock


class RankUnknown(SgpuError):
    code = "rank_unknown"


class OutOfTime(SgpuError):
    code = "wait_timeout"
    retryable = True


class RunFailed(SgpuError):
    code = "run_failed"
    exit_code = 5


class Usage(SgpuError):
    code = "usage"
    exit_code = 64


class Interrupted(SgpuError):
    code = "interrupted"
    exit_code = 130
