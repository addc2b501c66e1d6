"""Commands that messages tell to type. They work where they are pasted: the project, the target and
the file of the command that prints them are added here, so no message has to know them."""

import re
import shlex
from contextvars import ContextVar
from typing import TYPE_CHECKING

from sgpu_decl.errors import SgpuError

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.model.plan import Plan

__all__ = ["complete", "complete_error", "complete_finding", "complete_plan", "forget", "remember"]

_session: "ContextVar[Session | None]" = ContextVar("session", default=None)

_COMMAND = re.compile(r"`sgpu ([a-z]+)((?: [^`]*)?)`")
_ABOUT_A_PROJECT = frozenset(
    {
        "adopt", "apply", "cancel", "destroy", "fetch", "gc", "logs", "mlflow", "plan", "results",
        "show", "state", "status", "wait",
    }
)  # fmt: skip
_COMPLETE = re.compile(r" (?:-t|--target|--project|--help)(?: |$)")


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
    if session is None or "`sgpu " not in text:
        return text
    return _COMMAND.sub(lambda match: _completed(session, match), text)


def _completed(session: "Session", match: "re.Match[str]") -> str:
    name, rest = match[1], match[2]
    if name not in _ABOUT_A_PROJECT or _COMPLETE.search(rest) or _of_saved_plan(name, rest):
        return match[0]
    return session.shell_command(name + rest)


def _of_saved_plan(name: str, rest: str) -> bool:
    """Whether a command is about a saved plan, which names its own project and target."""
    if name not in ("apply", "show"):
        return False
    from pathlib import Path

    from sgpu_decl.api import is_saved_plan

    try:
        words = shlex.split(rest)
    except ValueError:  # a name that holds a backtick was cut there
        return False
    return any(is_saved_plan(Path(word)) for word in words if not word.startswith("-"))


def complete_error(error: SgpuError) -> SgpuError:
    """The same error; its hints are complete."""
    error.hint = complete(error.hint or "") or None
    error.diagnostics = tuple(map(complete_finding, error.diagnostics))
    return error


def complete_finding(finding: "Diagnostic") -> "Diagnostic":
    from dataclasses import replace

    return replace(finding, hint=complete(finding.hint)) if finding.hint else finding


def complete_plan(plan: "Plan") -> "Plan":
    """A plan to be shown: the hints of its checks are complete."""
    from dataclasses import replace

    return replace(plan, checks=tuple(map(complete_finding, plan.checks)))
