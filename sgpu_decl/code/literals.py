"""Literal values in Python source that a run file can hold."""

import ast
import math
from collections.abc import Iterable

from sgpu_decl.diagnostics.tokens import find_token
from sgpu_decl.model.jsonable import LARGEST_NUMBER, Json

_LONGEST = 50  # characters of a default in a comment
_MOST = 8  # choices in a comment


def literal(node: ast.expr) -> Json:
    """The value of a literal of JSON; `None` for any other expression too."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if _is_json(value) else None


def is_plain_text(text: str) -> bool:
    """Whether a run file may hold a text as it is: it is no secret, and refers to nothing, as
    `${var.x}`, `$HOME` and `~/data` do."""
    refers = "$" in text or text.startswith("~/")
    return text.isprintable() and not refers and find_token(text) is None


def shown_source(node: ast.expr) -> str:
    """An expression for a comment of one line."""
    text = ast.unparse(node)
    if not is_plain_text(text):
        return "in the source"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def one_of(choices: Iterable[str]) -> str:
    """The choices of an argument, for a comment."""
    names = list(choices)
    more = ", …" if len(names) > _MOST else ""
    return f"one of: {', '.join(names[:_MOST])}{more}"


def _is_json(value: object) -> bool:
    match value:
        case None | bool():
            return True
        case int():
            return abs(value) < LARGEST_NUMBER
        case float():
            return math.isfinite(value)
        case str():
            return is_plain_text(value)
        case list():
            return all(map(_is_json, value))
        case dict():
            return all(isinstance(key, str) and _is_json(key) for key in value) and all(
                map(_is_json, value.values())
            )
    return False
