"""Compares measured values with what sgpu assumes."""

from sgpu_decl.model.assumptions import Comparison, Value, assumptions
from sgpu_decl.model.doctor_finding import Finding, Grade
from sgpu_decl.model.jsonable import Json


def compared(id_: str, found: Value | None, text: str) -> Finding:
    """The finding about an assumption that was measured; `found` is `None` where what it is about
    never came. Raises KeyError: the id is unknown."""
    assumption = assumptions()[id_]
    holds = found is not None and _agrees(assumption.comparison, assumption.expected, found)
    return Finding(
        check=id_,
        grade=Grade.OK if holds or assumption.harmless else Grade.WARN,
        text=text,
        hint=None if holds else assumption.if_wrong,
        assumption=id_,
        expected=_json(assumption.expected),
        found=None if found is None else _json(found),
    )


def _agrees(comparison: Comparison, expected: Value, found: Value) -> bool:
    if isinstance(expected, tuple) and isinstance(found, tuple):
        missing, others = set(expected) - set(found), set(found) - set(expected)
        return not missing and (comparison is Comparison.INCLUDES or not others)
    if comparison is Comparison.VERSION:
        return _version(found) >= _version(expected)
    if isinstance(expected, int | float) and isinstance(found, int | float):
        if comparison is Comparison.AT_LEAST:
            return found >= expected
        if comparison is Comparison.AT_MOST:
            return found <= expected
    return found == expected


def _version(value: Value) -> tuple[int, ...]:
    return tuple(int(part) for part in str(value).split("."))


def _json(value: Value) -> Json:
    return list(value) if isinstance(value, tuple) else value
