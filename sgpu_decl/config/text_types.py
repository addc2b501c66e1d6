"""Values that users write as text and that have one canonical text of their own: durations, sizes.
And the errors of validators: pydantic is loaded when something is wrong, or by the blocks."""

import re
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sgpu_decl.diagnostics.amounts import WRITTEN, duration_hint, read_duration
from sgpu_decl.frozen_dataclass import dataclass

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema, PydanticCustomError


def problem(
    code: str, summary: str, hint: str | None = None, **more: Any
) -> "PydanticCustomError":  # pydantic's own context is untyped
    """An error of ours for a validator to raise: it keeps its code, words and hint."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError(
        code,
        "{summary}",
        {"summary": summary, "hint": hint, "ours": True, **more},
    )


class Textual:
    """How pydantic takes such a type: `read` from what a user gives, `str` to the canonical text,
    `published` as its JSON Schema."""

    __slots__ = ()
    published: ClassVar[dict[str, Any]]

    @classmethod
    @abstractmethod
    def read(cls, value: object) -> Self:
        """Validate what a user or a caller gives.

        Raises:
            PydanticCustomError: it is none.
        """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        return dict(cls.published)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
# A hundred years: longer is a slip, and timers cannot hold it.
_LONGEST = 100 * 366 * 86_400.0
_LONGEST_TEXT = 40


@dataclass(frozen=True, slots=True, order=True)
class Duration(Textual):
    """A length of time. `90s`, `6h`, `1h30m`, `2d`, `1w`, `500ms`; a plain number is seconds."""

    seconds: float
    published: ClassVar[dict[str, Any]] = {
        "type": ["string", "number"],
        "pattern": rf"^{WRITTEN}$|^\d+(\.\d+)?$|\$\{{",
        "minimum": 0,
        "examples": ["90s", "6h", "1h30m"],
    }

    @classmethod
    def read(cls, value: object) -> "Duration":
        """Validate what a user or a caller gives.

        Raises:
            PydanticCustomError: it is no duration.
        """
        if isinstance(value, Duration):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds: float | None = float(value)
        else:
            seconds = read_duration(value) if isinstance(value, str) else None
        if seconds is None or not 0 <= seconds <= _LONGEST:
            hint = duration_hint(value if isinstance(value, str) and seconds is None else "")
            raise problem("bad_duration", "{path} must be a duration, not {given}", hint)
        return cls(round(seconds, 3))

    def __str__(self) -> str:
        """The canonical text: `360m` is `6h`, `90` is `1m30s`."""
        return _canonical(self.seconds)


@lru_cache(maxsize=256)
def _canonical(seconds: float) -> str:
    whole, rest = divmod(round(seconds * 1000), 1000)
    parts = []
    for unit, length in (("h", 3_600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest}ms")
    return "".join(parts) or "0s"


@dataclass(frozen=True, slots=True, order=True)
class Percent(Textual):
    """A share. `5%`, `0.5%`; a plain number is percent, too."""

    percent: float
    published: ClassVar[dict[str, Any]] = {
        "type": ["string", "number"],
        "pattern": r"^\d+(\.\d+)?\s*%?$|\$\{",
        "exclusiveMinimum": 0,
        "maximum": 100,
        "examples": ["5%", "0.5%"],
    }

    @classmethod
    def read(cls, value: object) -> "Percent":
        """Validate what a user or a caller gives.

        Raises:
            PydanticCustomError: it is no share.
        """
        if isinstance(value, Percent):
            return value
        text = str(value) if isinstance(value, int | float | str) else ""
        number = text.strip().removesuffix("%").strip()
        if not number.replace(".", "", 1).isdecimal() or not 0 < float(number) <= 100:
            raise problem(
                "bad_percent", "{path} must be a share above 0 % and up to 100 %", "write `5%`"
            )
        return cls(float(number))

    def __str__(self) -> str:
        return f"{self.percent:g}%"


@dataclass(frozen=True, slots=True, order=True)
class Size(Textual):
    """An amount of memory. `512MiB`, `2GiB`, `1.5GB`; a plain number is bytes."""

    bytes: int
    published: ClassVar[dict[str, Any]] = {
        "type": ["string", "integer"],
        "pattern": r"^\d+(\.\d+)?\s*([KMGTkmgt]i?)?[Bb]?$|\$\{",
        "minimum": 0,
        "examples": ["512MiB", "2GiB"],
    }

    @classmethod
    def read(cls, value: object) -> "Size":
        """Validate what a user or a caller gives.

        Raises:
            PydanticCustomError: it is no size.
        """
        if isinstance(value, Size):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        text = value.strip() if isinstance(value, str) else ""
        match = _SIZE.fullmatch(text)
        if match is None or len(text) > _LONGEST_TEXT:
            raise problem(
                "bad_size",
                "{path} must be a size, not {given}",
                "write `512MiB`, `2GiB` or `1.5GB`",
            )
        unit = (match[2] or "").lower()
        base = 1024 if unit.endswith("i") else 1000
        power = " kmgt".index(unit[0]) if unit else 0
        return cls(round(float(match[1]) * base**power))

    def __str__(self) -> str:
        """The canonical text: the greatest unit that divides it, of 1,024 or of 1,000, whichever
        gives the shorter number: `8GB` stays `8GB`."""
        number, unit = min(map(self._in_units, (1024, 1000)), key=lambda item: len(item[0]))
        return number + unit

    def _in_units(self, base: int) -> tuple[str, str]:
        infix = "iB" if base == 1024 else "B"
        for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
            if self.bytes and self.bytes % base**power == 0:
                return str(self.bytes // base**power), letter + infix
        return str(self.bytes), ""
