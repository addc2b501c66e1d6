"""Errors of a platform, with the place of the YAML setting that they are about."""

import re
from collections.abc import Iterator, Sequence
from copy import copy

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Change, FieldChange


def with_place(error: BackendError, change: Change) -> BackendError:
    """Return the error with the place of the setting whose name or value its message repeats, or
    unchanged if it repeats none."""
    field = _named(error.message, change.fields)
    if field is None or field.origin is None:
        return error
    error_at_field = copy(error)
    finding = Diagnostic(
        code=error.code, summary=error.message, place=field.origin, hint=error.hint
    )
    error_at_field.diagnostics = (finding,)
    return error_at_field


def _named(message: str, fields: Sequence[FieldChange]) -> FieldChange | None:
    """The setting with the longest match, its value first: names of settings are common words."""
    values = [
        (len(text), field) for field in fields for text in _said(field) if _has(message, text)
    ]
    names = [
        (len(name), field)
        for field in fields
        if "_" in (name := field.path.rpartition(".")[2]) and _has(message, name)
    ]
    for matches in (values, names):
        if matches:
            return max(matches, key=lambda pair: pair[0])[1]
    return None


def _said(field: FieldChange) -> Iterator[str]:
    yield from _texts(field.after)
    # Whom it is given to is part of the path: `permissions.group_name.users`.
    if field.path.startswith(f"{PERMISSIONS}."):
        yield field.path.split(".", 2)[-1].strip('"')


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _has(message: str, text: str) -> bool:
    return len(text) > 2 and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", message) is not None
