"""Commands that messages tell to type. They work where they are pasted: the project, the target and
the file of the command that prints them are added here, so no message has to know them."""

from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.errors import SgpuError

if TYPE_CHECKING:
    from sgpu_decl.api import Prepared, Session
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.plan import Plan

_Finding = TypeVar("_Finding", bound="Diagnostic")
_session: "ContextVar[Session | None]" = ContextVar("session", default=None)


def remember(session: "Session") -> None:
    """The project that the messages of this command are about from now on."""
    _session.set(session)


def forget() -> None:
    """A new command begins."""
    _session.set(None)


def complete(text: str) -> str:
    """A text of sgpu with the commands in backticks made complete. What ranks wrote stays as it
    is: never pass it here."""
    session = _session.get()
    return text if session is None else session.complete(text)


def complete_error(error: SgpuError) -> SgpuError:
    """The same error; its hints are complete."""
    error.hint = complete(error.hint or "") or None
    error.diagnostics = tuple(map(complete_finding, error.diagnostics))
    return error


def complete_finding(finding: "_Finding") -> "_Finding":
    from dataclasses import replace

    return replace(finding, hint=complete(finding.hint)) if finding.hint else finding


def complete_plan(plan: "Plan") -> "Plan":
    """A plan to be shown: the hints of its checks are complete."""
    session = _session.get()
    return plan if session is None else session.with_complete_hints(plan)


def plan_object(prepared: "Prepared") -> "dict[str, Json]":
    """The JSON of a plan; the hints of its checks are complete."""
    from dataclasses import replace

    return replace(prepared, plan=complete_plan(prepared.plan)).to_json()
