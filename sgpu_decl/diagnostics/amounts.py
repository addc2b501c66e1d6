"""Durations and numbers of bytes in words; the one grammar in which people write durations."""

import re
from functools import lru_cache

from sgpu_decl.agent.system.byte_size import size

__all__ = [
    "WRITTEN",
    "duration",
    "duration_hint",
    "read_duration",
    "size",
    "written_duration",
]

WRITTEN = r"(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?(\d+ms)?"
"""The grammar, for JSON Schema too. A plain number is seconds."""

_LENGTHS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_WRITTEN = re.compile(WRITTEN, re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])", re.ASCII)
_LONGEST_TEXT = 40

# What people write besides: `1.5h`, `1 hour`, `2 days 3 hours`, `90 min`, `1:30:00`.
_LOOSE = re.compile(
    r"(\d{1,9}(?:\.\d{1,6})?)\s*"
    r"(ms|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)\b",
    re.ASCII | re.IGNORECASE,
)
_BETWEEN = re.compile(r"[\s,]*|\s*,?\s*and\s+")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):(\d{2})", re.ASCII)


@lru_cache(maxsize=256)  # many runs have the same
def read_duration(written: str) -> float | None:
    """The seconds of a duration such as `90s`, `1h30m` or `7d`; None where it is none."""
    text = written.strip()
    if not text or len(text) > _LONGEST_TEXT:
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _WRITTEN.fullmatch(text):
        return None
    return sum(float(number) * _LENGTHS[unit] for number, unit in _PART.findall(text))


def duration_hint(written: str) -> str:
    """The hint for a text that is no duration: what it probably means, as one."""
    seconds = _meant(written.strip())
    if seconds is None or not seconds:
        return "write `90s`, `6h` or `1h30m`"
    return f"write `{written_duration(seconds)}`"


def _meant(text: str) -> float | None:
    if len(text) > _LONGEST_TEXT:
        return None
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = clock.groups()
        return int(hours or 0) * 3600.0 + int(minutes) * 60.0 + int(seconds)
    if any(_BETWEEN.fullmatch(rest) is None for rest in _LOOSE.split(text)[::3]):
        return None
    parts = _LOOSE.findall(text)
    return sum(float(number) * _LENGTHS[_unit(unit.lower())] for number, unit in parts) or None


def _unit(word: str) -> str:
    return word if word == "ms" else word[0]


def written_duration(seconds: float) -> str:
    """A duration as people write it: `90m` for 5,400, `1d12h`, `1500ms`."""
    thousandths = round(seconds * 1000)
    if thousandths % 1000:
        return f"{thousandths}ms"
    left = thousandths // 1000
    if left % 60 == 0 and 3600 < left < 2 * 3600:
        return f"{left // 60}m"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_LENGTHS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units: `3 d 4 h`, `6 h`, `1 m 30 s`, `0.2 s`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s".replace(".0 s", " s")
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
    return " ".join(part for part in parts[:2] if part)
