"""The core schema of YAML 1.2: what an unquoted scalar means.

PyYAML follows YAML 1.1, where `on` is true, `010` is 8 and `1:30` is 90. Here they are text, 10
and text. Source: https://yaml.org/spec/1.2.2/#1032-tag-resolution
"""

import re
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | None

_INFINITE = (".inf", ".Inf", ".INF")
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    **{sign + dot: float(sign + "inf") for sign in ("", "+", "-") for dot in _INFINITE},
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
}  # fmt: skip
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MAY_START_VALUE = frozenset("+-.0123456789~nNtTfF")
# Python refuses to read longer integers for good reason: the time grows with the square.
_LONGEST = 1000


def resolve(text: str) -> Value:
    """Return what the unquoted `text` means. Numbers of more than 1,000 characters stay text."""
    if text and text[0] not in _MAY_START_VALUE:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST or text[0] in "nNtTfF~":
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    return text


def is_null(text: str) -> bool:
    return text in _WORDS and _WORDS[text] is None
