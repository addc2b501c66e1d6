"""Cron expressions as Quartz has them: what is wrong with one, and how to write it instead.

Source: https://www.quartz-scheduler.org/documentation/quartz-2.3.0/tutorials/crontrigger.html, and
`org.quartz.CronExpression`, whose steps may not be longer than their field.
"""

import re
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class _Field:
    """`special` is what a part of it may be beside `*`, a number or a name, a range and a step."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    special: str = r"(?!)"


_FIELDS = (
    _Field("seconds", 0, 59),
    _Field("minutes", 0, 59),
    _Field("hours", 0, 23),
    _Field("day of month", 1, 31, (), r"\?|L(-([12]?\d|30))?W?|([1-9]|[12]\d|3[01])W"),
    _Field("month", 1, 12, _MONTHS),
    _Field(
        "day of week", 1, 7, _DAYS, rf"\?|L|([1-7]|{'|'.join(_DAYS)})(L|#[1-5])",
    ),
    _Field("year", 1970, 2199),
)  # fmt: skip
_DAY_OF_MONTH, _DAY_OF_WEEK = 3, 5
_EXAMPLE = "0 30 2 * * ?"
_SHORT = {
    "@yearly": "0 0 0 1 1 ?", "@annually": "0 0 0 1 1 ?", "@monthly": "0 0 0 1 * ?",
    "@weekly": "0 0 0 ? * SUN", "@daily": "0 0 0 * * ?", "@midnight": "0 0 0 * * ?",
    "@hourly": "0 0 * * * ?",
}  # fmt: skip
"""What cron of Linux has for some (crontab(5))."""


def refuse_cron(text: str) -> tuple[str, str] | None:
    """Why a text is no Quartz cron expression, and what to write; `None` where it is one. What the
    hint says to write is one."""
    fields = text.split()
    if text.strip().lower() in _SHORT:
        return "is a short form of Unix cron", f"write `{_SHORT[text.strip().lower()]}`"
    if len(fields) == 5:
        return (
            "has the five fields of Unix cron; a Quartz expression begins with the seconds",
            _write_instead(_from_unix(fields)),
        )
    if len(fields) not in (6, 7):
        return (
            f"has {len(fields)} field{'' if len(fields) == 1 else 's'}",
            f"write seconds, minutes, hours, day of month, month, day of week: `{_EXAMPLE}`",
        )
    for field, written in zip(_FIELDS, fields, strict=False):
        if (refused := _refused(field, written.upper())) is not None:
            return refused
    if [fields[_DAY_OF_MONTH], fields[_DAY_OF_WEEK]].count("?") != 1:
        return (
            "must have `?` for either the day of month or the day of week",
            _write_instead(_with_one_day(fields)),
        )
    return None


def _refused(field: _Field, written: str) -> tuple[str, str] | None:
    """Why a text is not what a field may have."""
    parts = written.split(",")
    for part in parts:
        if re.fullmatch(field.special, part) and (part != "?" or len(parts) == 1):
            continue
        span, slash, step = part.partition("/")
        ends = span.split("-")
        numbers = [_number(field, end) for end in ends]
        formed = (
            len(ends) == 1 and (span in ("*", "") if slash else span == "*")
        ) or (len(ends) <= 2 and None not in numbers)  # fmt: skip
        if not formed or (slash and not step.isdecimal()):
            return f"has `{part[:20]}` for the {field.name}", f"write it as in `{_EXAMPLE}`"
        wrong = [
            str(number)
            for number in numbers
            if number is not None and not field.least <= number <= field.most
        ]
        limits = f"{field.least} to {field.most}"
        if wrong:
            return (
                f"has `{wrong[0]}` for the {field.name}, which are {limits}"
                if field.name.endswith("s")
                else f"has `{wrong[0]}` for the {field.name}, which is {limits}",
                f"write a number from {limits}",
            )
        if step and int(step) > field.most:
            return (
                f"has a step of {step} for the {field.name}, which end at {field.most}"
                if field.name.endswith("s")
                else f"has a step of {step} for the {field.name}, which ends at {field.most}",
                f"write a step of at most {field.most}",
            )
    return None


def _number(field: _Field, text: str) -> int | None:
    if text.isdecimal() and text.isascii():
        return int(text[:9])
    return field.names.index(text) + 1 if text in field.names else None


def _write_instead(suggestion: str | None) -> str:
    """The hint that suggests an expression, if it is a right one."""
    if suggestion is not None and refuse_cron(suggestion) is None:
        return f"write `{suggestion}`"
    return (
        "`0 30 2 * * ?` is every day, `0 30 2 ? * MON` each Monday; for both kinds of days make "
        "two jobs"
    )


def _with_one_day(fields: list[str]) -> str | None:
    """The same days, if one of the two fields says nothing."""
    day, weekday = fields[_DAY_OF_MONTH], fields[_DAY_OF_WEEK]
    fields = list(fields)
    if day == weekday == "?":
        fields[_DAY_OF_MONTH] = "*"
    elif weekday == "*":
        fields[_DAY_OF_WEEK] = "?"
    elif day == "*":
        fields[_DAY_OF_MONTH] = "?"
    else:
        return None
    return " ".join(fields)


def _from_unix(fields: list[str]) -> str | None:
    minutes, hours, day, month, weekday = fields
    # Quartz counts days of the week from Sunday, 1; Unix from Sunday, 0.
    weekday = re.sub(r"(?<![#/\d])[0-7](?!\d)", lambda item: str(int(item[0]) % 7 + 1), weekday)
    return _with_one_day(["0", minutes, hours, day, month, weekday])
