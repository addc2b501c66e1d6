"""Time zones by name, as machines know them: some lack the names that zones had before."""

import re
from collections.abc import Collection, Iterator
from functools import cache

from sgpu_decl.config.problems import problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, is_nothing, place_of

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
