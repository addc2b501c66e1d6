"""Events of a plan or an apply as JSON, one object a line (`schemas/stream.v1.schema.json`)."""

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.code.selection import EVENT_ENDINGS
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.times import to_text
from sgpu_decl.views.envelope import error_to_json, shown_values
from sgpu_decl.views.status_json import attempt_object

if TYPE_CHECKING:
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.errors import SgpuError
    from sgpu_decl.model.attempt_view import AttemptView

__all__ = [
    "EVENT_ENDINGS",
    "FIRST_KEYS",
    "change_event",
    "diagnostic_event",
    "event_line",
    "run_event",
    "summary_event",
]

FIRST_KEYS = b'{"v": 1, "ts": "'
"""What every line begins with."""
_TYPES: Mapping[Step, str] = MappingProxyType(
    {
        Step.STARTED: "change_started",
        Step.FAILED: "change_failed",
        **dict.fromkeys(
            (
                Step.LAUNCHED,
                Step.CREATED,
                Step.ADOPTED,
                Step.UPDATED,
                Step.STAGED,
                Step.MOVED,
                Step.FORGOTTEN,
                Step.DESTROYED,
            ),
            "change_done",
        ),
    }
)


def event_line(kind: str, fields: Mapping[str, Json], *, now: datetime) -> bytes:
    """Return one line, in ASCII."""
    event = {"v": 1, "ts": to_text(now), "type": kind, **fields}
    return json.dumps(shown_values(event)).encode() + b"\n"


def change_event(event: ApplyEvent) -> tuple[str, dict[str, Json]] | None:
    """A step of an apply; `None` for one that is no beginning and no end of a change."""
    kind = _TYPES.get(event.step)
    if kind is None:
        return None
    return kind, {
        "address": str(event.address),
        "attempt": event.attempt.number if event.attempt else None,
        "step": str(event.step),
        "message": event.message or None,
    }


def run_event(view: "AttemptView") -> dict[str, Json]:
    """The state of an attempt that is followed."""
    return {**attempt_object(view), "restart": view.restart}


def diagnostic_event(finding: "Diagnostic") -> dict[str, Json]:
    """A finding about a file, or a check of a plan."""
    return {"diagnostic": finding.to_json()}


def summary_event(exit_code: int, error: "SgpuError | None") -> dict[str, Json]:
    """The last line: how the command ended."""
    return {"exit_code": exit_code, "error": error_to_json(error) if error else None}
