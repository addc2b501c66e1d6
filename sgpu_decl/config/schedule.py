"""Schedules: cron expressions as Quartz has them, what is wrong with one and how to write it
instead; and time zones by name, as machines know them (some lack the names that zones had before).

Source: https://www.quartz-scheduler.org/documentation/quartz-2.3.0/tutorials/crontrigger.html, and
`org.quartz.CronExpression`, whose steps may not be longer than their field.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

from sgpu_decl.config.text_types import problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, is_nothing, place_of

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


_OFFSET = re.compile(r"(?:UTC|GMT|Z)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_KEY = "timezone"

# The links of `backward` in IANA's database. Platforms know them; distributions may leave them to
# a package of its own, as Debian and Ubuntu do (`tzdata-legacy`).
_FORMER = frozenset(
    """
Africa/Asmera Africa/Timbuktu America/Argentina/ComodRivadavia America/Atka America/Buenos_Aires
America/Catamarca America/Coral_Harbour America/Cordoba America/Ensenada America/Fort_Wayne
America/Godthab America/Indianapolis America/Jujuy America/Knox_IN America/Kralendijk
America/Louisville America/Lower_Princes America/Marigot America/Mendoza America/Montreal
America/Nipigon America/Pangnirtung America/Porto_Acre America/Rainy_River America/Rosario
America/Santa_Isabel America/Shiprock America/St_Barthelemy America/Thunder_Bay America/Virgin
America/Yellowknife Antarctica/South_Pole Arctic/Longyearbyen Asia/Ashkhabad Asia/Calcutta
Asia/Choibalsan Asia/Chongqing Asia/Chungking Asia/Dacca Asia/Harbin Asia/Istanbul Asia/Kashgar
Asia/Katmandu Asia/Macao Asia/Rangoon Asia/Saigon Asia/Tel_Aviv Asia/Thimbu Asia/Ujung_Pandang
Asia/Ulan_Bator Atlantic/Faeroe Atlantic/Jan_Mayen Australia/ACT Australia/Canberra
Australia/Currie Australia/LHI Australia/NSW Australia/North Australia/Queensland Australia/South
Australia/Tasmania Australia/Victoria Australia/West Australia/Yancowinna Brazil/Acre
Brazil/DeNoronha Brazil/East Brazil/West Canada/Atlantic Canada/Central Canada/Eastern
Canada/Mountain Canada/Newfoundland Canada/Pacific Canada/Saskatchewan Canada/Yukon
Chile/Continental Chile/EasterIsland Cuba Egypt Eire Etc/GMT+0 Etc/GMT-0 Etc/GMT0 Etc/Greenwich
Etc/UCT Etc/Universal Etc/Zulu Europe/Belfast Europe/Bratislava Europe/Busingen Europe/Kiev
Europe/Mariehamn Europe/Nicosia Europe/Podgorica Europe/San_Marino Europe/Tiraspol Europe/Uzhgorod
Europe/Vatican Europe/Zaporozhye GB GB-Eire GMT+0 GMT-0 GMT0 Greenwich Hongkong Iceland Iran
Israel Jamaica Japan Kwajalein Libya Mexico/BajaNorte Mexico/BajaSur Mexico/General NZ NZ-CHAT
Navajo PRC Pacific/Enderbury Pacific/Johnston Pacific/Ponape Pacific/Samoa Pacific/Truk
Pacific/Yap Poland Portugal ROC ROK Singapore Turkey UCT US/Alaska US/Aleutian US/Arizona
US/Central US/East-Indiana US/Eastern US/Hawaii US/Indiana-Starke US/Michigan US/Mountain
US/Pacific US/Samoa Universal W-SU Zulu
    CET CST6CDT EET EST EST5EDT HST MET MST MST7MDT PST8PDT WET
    """.split()  # noqa: SIM905  a table
)


@cache
def known_zones() -> frozenset[str]:
    """The names that this machine has; none where it has no list of them."""
    from zoneinfo import available_timezones

    return frozenset(available_timezones())


def zone_name(name: str) -> str:
    """Refuse what is no time zone: an offset, and a name that is like a known one. Another name
    that this machine lacks is left to the platform (`timezone_findings`)."""
    if _is_named(name):
        return name
    if _OFFSET.fullmatch(name):
        hint = _zone_of_offset(name, known_zones())
        raise problem("unknown_timezone", "{path} names no time zone", hint)
    if near := _like(name):
        raise problem("unknown_timezone", "{path} names no time zone", f"did you mean `{near}`?")
    return name


def timezone_findings(root: Mapping) -> Iterator[Diagnostic]:
    """Find zones of jobs that this machine does not know, and that may be newer than its list."""
    jobs = root.entries.get("jobs")
    for job in jobs.entries.values() if isinstance(jobs, Mapping) else ():
        node = job.entries.get(_KEY) if isinstance(job, Mapping) else None
        if not isinstance(node, Scalar) or is_nothing(node) or "${" in node.text:
            continue
        name = node.text
        if not _is_named(name) and not _OFFSET.fullmatch(name) and not _like(name):
            yield Diagnostic(
                code="unknown_timezone",
                severity=Severity.WARNING,
                summary=f"this machine knows no time zone `{name}`",
                place=place_of(node),
                hint="the platform decides whether there is one. Most names are those of a place, "
                "such as `Europe/Berlin`",
            )


@cache
def _like(name: str) -> str | None:
    """The known name that is like this one."""
    return nearest(name, sorted(known_zones() | _FORMER))


def _is_named(name: str) -> bool:
    known = known_zones()
    return name in ("", "UTC", "GMT") or name in known or name in _FORMER or not known


def _zone_of_offset(name: str, known: Collection[str]) -> str:
    """What to write for an offset, such as `UTC+2`."""
    place = "name a place, such as `Europe/Berlin`, whose clock follows summer time"
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return place
    sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
    # POSIX counts to the west: `Etc/GMT-2` is two hours ahead of UTC.
    zone = f"Etc/GMT{'-' if sign == '+' else '+'}{hours}" if hours or minutes else "UTC"
    if minutes or zone not in {*known, "UTC"}:
        return place
    side = "ahead of" if sign == "+" else "behind"
    which = f"which is {hours} h {side} UTC: its sign is the other way round"
    return f"write `{zone}`, {which}. Or {place}"
