"""What the Jobs API refuses in schedules and triggers."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from sgpu_decl.testing.workspace.task_rules import TaskProblem

__all__ = ["schedule_problems"]

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
# The least and the greatest number of each field, and names that it may have.
_FIELDS: tuple[tuple[int, int, list[str]], ...] = (
    (0, 59, []), (0, 59, []), (0, 23, []), (1, 31, []), (1, 12, _MONTHS), (1, 7, _DAYS),
    (1970, 2199, []),
)  # fmt: skip
_SPECIAL = re.compile(r"\?|L(-\d+)?W?|\d+W|([1-7]|[A-Z]{3})(L|#[1-5])")
_PAUSED = ("PAUSED", "UNPAUSED")


def schedule_problems(settings: Mapping[str, Any]) -> Iterator[TaskProblem]:
    """All problems of what starts a job."""
    starting = [name for name in ("schedule", "trigger", "continuous") if settings.get(name)]
    if len(starting) > 1:
        yield TaskProblem(starting[1], f"Only one of {' and '.join(starting)} can be specified.")
    for name in starting:
        if settings[name].get("pause_status", "PAUSED") not in _PAUSED:
            yield TaskProblem(f"{name}.pause_status", f"pause_status must be one of {_PAUSED}.")
    schedule = settings.get("schedule")
    if not schedule:
        return
    cron, zone = schedule.get("quartz_cron_expression"), schedule.get("timezone_id")
    if not isinstance(cron, str) or not _is_quartz(cron) or _never_comes(cron):
        yield TaskProblem("schedule.quartz_cron_expression", f"Invalid cron expression: '{cron}'.")
    if zone not in _zones():
        yield TaskProblem("schedule.timezone_id", f"Invalid timezone: '{zone}'.")


@cache
def _zones() -> frozenset[str]:
    """Those of Java, which lacks some."""
    return frozenset(available_timezones()) - {"Factory", "ROC", "localtime"}


def _is_quartz(text: str) -> bool:
    fields = text.upper().split()
    if len(fields) not in (6, 7) or (fields[3] == "?") == (fields[5] == "?"):
        return False
    return all(
        _fits(part, *kind) or (at in (3, 5) and _SPECIAL.fullmatch(part) is not None)
        for at, (field, kind) in enumerate(zip(fields, _FIELDS, strict=False))
        for part in field.split(",")
    )


def _never_comes(text: str) -> bool:
    """Whether a day is none of its month: Quartz schedules no trigger that never fires."""
    day, month = text.upper().split()[3:5]
    number = str(_MONTHS.index(month) + 1) if month in _MONTHS else month
    most = {"2": 29, "4": 30, "6": 30, "9": 30, "11": 30}.get(number, 31)
    return day.isdecimal() and int(day) > most


def _fits(part: str, least: int, most: int, names: list[str]) -> bool:
    """`*`, a number or a range of them, each maybe with a step."""
    span, _, step = part.partition("/")
    if step and not step.isdecimal():
        return False
    if "/" in part and not step:
        return False
    if span == "*" or (span == "" and step):
        return True
    return all(
        end in names or (end.isdecimal() and least <= int(end) <= most)
        for end in span.split("-", 1)
    )
