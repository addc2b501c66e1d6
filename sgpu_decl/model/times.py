"""Times as text: RFC 3339 in UTC, `2026-05-01T12:00:00.25Z`."""

from datetime import UTC, datetime
from typing import overload


@overload
def to_text(moment: datetime) -> str: ...
@overload
def to_text(moment: None) -> None: ...
def to_text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


@overload
def from_text(text: str) -> datetime: ...
@overload
def from_text(text: None) -> None: ...
def from_text(text: str | None) -> datetime | None:
    """Raises ValueError when the text is no time."""
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    if moment.utcoffset():
        try:
            moment.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"`{text}` lies outside of the calendar in UTC") from error
    return moment
