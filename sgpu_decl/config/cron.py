"""Cron expressions as Quartz has them: what is wrong with one, as far as its form tells."""

import re

__all__ = ["refuse_cron"]

_FIELDS = ("seconds", "minutes", "hours", "day of month", "month", "day of week", "year")
_FIELD = re.compile(r"[0-9A-Za-z*?,/#LW-]+")
_DAY_OF_MONTH, _DAY_OF_WEEK = 3, 5


def refuse_cron(text: str) -> tuple[str, str] | None:
    """Why a text is no Quartz cron expression, and what to write; `None` where it may be one.

    Whether every number is in its range is the scheduler's to say.
    """
    fields = text.split()
    if len(fields) == 5:
        return (
            "has the five fields of Unix cron; a Quartz expression begins with the seconds",
            f"write `{_from_unix(fields)}`",
        )
    if len(fields) not in (6, 7):
        return (
            f"has {len(fields)} field{'' if len(fields) == 1 else 's'}",
            "write seconds, minutes, hours, day of month, month, day of week: `0 30 2 * * ?`",
        )
    for name, field in zip(_FIELDS, fields, strict=False):
        if not _FIELD.fullmatch(field):
            return f"has `{field[:20]}` for the {name}", "write it as in `0 30 2 * * ?`"
    if [fields[_DAY_OF_MONTH], fields[_DAY_OF_WEEK]].count("?") != 1:
        return (
            "must have `?` for either the day of month or the day of week",
            "`0 30 2 * * ?` is every day, `0 30 2 ? * MON` each Monday",
        )
    return None


def _from_unix(fields: list[str]) -> str:
    minutes, hours, day, month, weekday = fields
    if weekday == "*":
        weekday = "?"
    elif day == "*":
        # Quartz counts days of the week from Sunday, 1; Unix from Sunday, 0.
        day = "?"
        weekday = re.sub(r"(?<![#/\d])[0-7](?!\d)", lambda item: str(int(item[0]) % 7 + 1), weekday)
    return " ".join(("0", minutes, hours, day, month, weekday))
