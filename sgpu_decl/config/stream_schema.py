"""The schema of the events that `--json-into` writes."""

from typing import Any

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.event import Step

__all__ = ["stream_schema"]

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
_MAYBE_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0}
_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_CHANGE: dict[str, Schema] = {
    "address": _TEXT,
    "attempt": {**_MAYBE_COUNT, "description": "The attempt that is launched or attached, if any."},
    "step": {"enum": [str(step) for step in Step], "description": "What was done."},
    "message": {**_MAYBE_TEXT, "description": "Why it failed, or what else there is to say."},
}
_DIAGNOSTIC: Schema = {
    "type": "object",
    "properties": {
        "code": _TEXT,
        "severity": {"enum": [str(severity) for severity in Severity]},
        "summary": _TEXT,
        "file": _MAYBE_TEXT,
        "line": _MAYBE_COUNT,
        "column": _MAYBE_COUNT,
        "hint": _MAYBE_TEXT,
        "related": {"type": "array"},
    },
    "required": ["code", "severity", "summary", "file", "line", "column", "hint", "related"],
}
_TYPES: dict[str, tuple[str, dict[str, Schema]]] = {
    "version": ("The first line.", {"tool_version": _TEXT}),
    "plan": (
        "A plan that was made or loaded: the object of `plan.v1.schema.json`.",
        {"plan": {"type": "object"}},
    ),
    "change_started": ("A launch begins.", _CHANGE),
    "change_done": ("A change was carried out.", _CHANGE),
    "change_failed": ("A change was not carried out.", _CHANGE),
    "run_state": (
        "An attempt that is followed has another state.",
        {
            "address": _TEXT,
            "name": _TEXT,
            "attempt": {"type": "integer", "minimum": 1},
            "state": {"enum": [str(state) for state in AttemptState]},
            "started_at": _TIME,
            "ended_at": _TIME,
            "restart": {"type": "integer", "minimum": 0},
        },
    ),
    "diagnostic": (
        "A check of the plan, or a finding of the command.",
        {"diagnostic": _DIAGNOSTIC},
    ),
    "summary": (
        "The last line.",
        {
            "exit_code": {"type": "integer", "minimum": 0},
            "error": {
                "type": ["object", "null"],
                "description": "The error with which the command ended, as `-o json` shows it.",
            },
        },
    ),
}


def stream_schema() -> Schema:
    """One line; each type has keys of its own. Types and keys may be added."""
    return {
        "type": "object",
        "properties": {"v": {"const": 1}, "ts": {"type": "string", "format": "date-time"}},
        "required": ["v", "ts", "type"],
        "oneOf": [
            {
                "description": text,
                "properties": {"type": {"const": name}, **keys},
                "required": ["type", *keys],
            }
            for name, (text, keys) in _TYPES.items()
        ],
    }
