"""Whether a report of an attempt, `outcome.json` or `status.json`, can be one that an agent wrote.
Whoever may write to the folder of an attempt can change it, and each reader would stumble over
another value. Only what readers rely on is looked at."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Check = Callable[[Any], bool]

_STATES = frozenset(
    ("queued", "staging", "starting", "running", "stopping", "succeeded", "failed", "cancelled",
     "lost")
)  # fmt: skip
_LARGEST = 1 << 63


def is_report(value: dict[str, Any]) -> bool:
    """Whether every field that is there holds what its readers expect."""
    return _REPORT(value)


def _number(value: Any) -> bool:
    return type(value) is int and -_LARGEST < value < _LARGEST


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _time(value: Any) -> bool:
    from datetime import datetime

    if not isinstance(value, str) or not value.endswith("Z"):
        return False
    try:
        datetime.fromisoformat(f"{value[:-1]}+00:00")
    except ValueError:
        return False
    return True


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object(sometimes: dict[str, Check], **always: Check) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, dict) or not always.keys() <= value.keys():
            return False
        checks = {**sometimes, **always}
        return all(checks[name](item) for name, item in value.items() if name in checks)

    return check


def _metrics(value: Any) -> bool:
    return isinstance(value, dict) and all(
        item is None or isinstance(item, (int, float)) for item in value.values()
    )


_RANK = _object(
    {
        "node_rank": _maybe(_number),
        "state": _text,
        "exit_code": _maybe(_number),
        "signal": _maybe(_text),
        "dropped_bytes": _maybe(_number),
    },
    rank=_number,
)
_EXPLANATION = _object({}, blame=_maybe(_text), meaning=_text, next_step=_text, source=_text)
_CAUSE = _object(
    {
        "stacks": _each(_object({}, rank=_number, file=_text)),
        "kind": _maybe(_text),
        "explanation": _EXPLANATION,
    },
    rank=_maybe(_number),
    summary=_text,
    traceback=_maybe(_text),
    simultaneous=_each(_number),
    **{"class": _maybe(_text)},
)
_RESTART = _object(
    {},
    restart=_number,
    at=_time,
    starts_at=_time,
    rank=_maybe(_number),
    summary=_text,
    **{"class": _maybe(_text)},
)
_RAY = _object(
    {"dashboard": _maybe(_text), "token_file": _maybe(_text), "host": _maybe(_text)},
    version=_text,
    nodes=_number,
)
are_notices = _each(
    _object({}, way=_text, ok=lambda value: type(value) is bool, tries=_number, summary=_text,
            at=_time)
)  # fmt: skip
"""Whether a value is what `agent.notices` wrote."""
_REPORT = _object(
    {
        "started_at": _maybe(_time),
        "ended_at": _maybe(_time),
        "exit_code": _maybe(_number),
        "class": _maybe(_text),
        "ranks": _maybe(_each(_RANK)),
        "first_cause": _maybe(_CAUSE),
        "restart": _maybe(_number),
        "restarts": _maybe(_each(_RESTART)),
        "waiting_for": _maybe(_text),
        "mlflow": _maybe(_object({})),
        "ray": _maybe(_RAY),
        "working_files": _maybe(_object({}, names=_each(_text), count=_number)),
        "metrics": _maybe(_metrics),
        "metrics_problem": _maybe(_text),
        "notices": _maybe(are_notices),
    },
    state=lambda value: isinstance(value, str) and value in _STATES,
)
