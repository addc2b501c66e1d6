"""Frozen dataclasses to JSON and back, and the schema of that JSON, by the types of their fields.

    a field's type                   in JSON
    text, bool, Json                 itself
    float                            itself, or null for NaN and infinity, which JSON lacks
    int                              itself, from 0 to 2^53
    StrEnum                          its text
    datetime                         RFC 3339
    Address, Path                    its text, `run.train`
    Spec                             its canonical text
    tuple[X, ...], Sequence[X]       a list
    Mapping[str, str]                an object
    X | None                         X, or null
    another dataclass                an object

The fields of a field that is marked `FLAT` stand beside those of the class that holds it. One that
is marked `UNWRITTEN` is no part of the JSON, one that is `PRIVATE` none of what is published, and
one that is `SOMETIMES` written is left out where it has its default. `written_as` gives a field
another key. Reading is strict: unknown and missing keys are refused, each with its path, such as
`changes[0].launch.token`, unless a reader is told that an older or a newer version wrote them.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin

from sgpu_decl.frozen_dataclass import FLAT, KEY, PRIVATE, SOMETIMES, UNWRITTEN
from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import LARGEST_NUMBER, Json, Spec
from sgpu_decl.model.times import from_text, to_text

_T = TypeVar("_T")


class BadValue(ValueError):
    """The JSON does not fit: `path` says where, `problem` what is wrong with it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"`{path}` {problem}")
        self.path = path


class MissingKey(BadValue):
    """A key is missing."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "is missing")


class UnknownKey(BadValue):
    """There is a key that no field has."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "is not known")


def key_of(field: "Field[Any]") -> str:
    """The name of a field in JSON."""
    return str(field.metadata.get(KEY, field.name))


def to_json(value: object, *, times: Callable[[datetime], str] = to_text) -> Json:
    """Return the JSON of a value; see above.

    Args:
        times: how times are written.

    Raises:
        TypeError: the value has another type.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str | Address | Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [to_json(item, times=times) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item, times=times) for key, item in value.items()}
    if isinstance(value, datetime):
        return times(value)
    if isinstance(value, Spec):
        return value.text
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} has no JSON")
    written: dict[str, Json] = {}
    for one in fields(value):
        item = getattr(value, one.name)
        if one.metadata == FLAT:
            written |= cast("dict[str, Json]", to_json(item, times=times))
        elif one.metadata != UNWRITTEN and not (
            one.metadata == SOMETIMES and item == _default(one)
        ):
            written[key_of(one)] = to_json(item, times=times)
    return written


def _default(one: "Field[Any]") -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


Schema = dict[str, Any]
"""A JSON Schema."""

_SCALARS: Mapping[object, Schema] = types.MappingProxyType(
    {
        str: {"type": "string"},
        bool: {"type": "boolean"},
        int: {"type": "integer", "minimum": 0},
        float: {"type": "number"},
        datetime: {"type": "string", "format": "date-time", "description": "RFC 3339, UTC."},
        Address: {"type": "string"},
        Spec: {"type": "string"},
        Json: {},
    }
)


def schema_of(hint: Any, notes: Mapping[type, Mapping[str, str | Schema]]) -> Schema:
    """Return the schema of what `to_json` makes of a type.

    Args:
        notes: what classes do not say, by their keys in JSON: a description, or another schema.
            Keys that no field has are added.
    """
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return {"anyOf": [schema_of(inner, notes), {"type": "null"}]}
    if get_origin(hint) in (tuple, Sequence):
        return {"type": "array", "items": schema_of(arguments[0], notes)}
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if not is_dataclass(hint):
        return {"enum": [str(word) for word in cast("type[StrEnum]", hint)]}
    said = notes.get(cast("type", hint), {})
    keys: Schema = {key: note for key, note in said.items() if not isinstance(note, str)}
    sometimes = set()
    for one in fields(hint):
        if one.metadata == FLAT:
            inside = schema_of(one.type, notes)
            keys = inside["properties"] | keys
            sometimes |= inside["properties"].keys() - inside["required"]
        elif one.metadata not in (UNWRITTEN, PRIVATE):
            keys.setdefault(key_of(one), schema_of(one.type, notes))
            sometimes |= {key_of(one)} if one.metadata == SOMETIMES else set()
    for key, note in said.items():
        if isinstance(note, str):
            keys[key] = {**keys[key], "description": note}
    return {
        "type": "object",
        "properties": keys,
        "required": [key for key in keys if key not in sometimes],
        "additionalProperties": False,
    }


class JsonObject:
    """One JSON object that is being read, and where it is.

    Args:
        value: what `json.loads` returned.
        path: where it is; empty for the outermost.
        readers: how classes are read that need more than their fields.
        lenient: a key may be missing where its field has a default.
        newer: a later version wrote it: unknown keys are passed over.
    """

    def __init__(
        self,
        value: object,
        path: str = "",
        *,
        readers: "Mapping[type, Callable[[JsonObject], object]] | None" = None,
        lenient: bool = False,
        newer: bool = False,
    ) -> None:
        if not isinstance(value, dict):
            raise BadValue(path or "it", "is not an object")
        self._value = value
        self._path = path
        self._readers = readers or {}
        self._lenient = lenient
        self._newer = newer
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def whole(self, kind: type[_T]) -> _T:
        """Read the object as a `kind`.

        Raises:
            BadValue: it is none, or has keys that `kind` does not have.
        """
        read = self._readers.get(kind)
        value = self.part(kind) if read is None else cast("_T", read(self))
        unknown = self._value.keys() - self._read
        if unknown and not self._newer:
            raise UnknownKey(self._path_of(min(unknown)))
        return value

    def part(self, kind: type[_T], **values: object) -> _T:
        """Read those keys of the object that `kind` has.

        Args:
            values: fields that are known, and are not read.

        Raises:
            BadValue: one is missing, or has another type.
        """
        for one in fields(cast("Any", kind)):
            if one.name in values:
                continue
            key = key_of(one)
            path = self._path_of(key)
            if one.metadata == FLAT:
                values[one.name] = self.part(cast("type[object]", one.type))
            elif one.metadata == UNWRITTEN:
                continue
            elif key in self._value:
                self._read.add(key)
                values[one.name] = self._as(one.type, self._value[key], path)
            elif one.default is MISSING or not (self._lenient or one.metadata == SOMETIMES):
                raise MissingKey(path)
        return kind(**values)

    def take(self, key: str) -> object:
        """The value of a key as it is; None if there is none."""
        self._read.add(key)
        return self._value.get(key)

    def _path_of(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _as(self, hint: Any, value: object, path: str) -> object:
        if hint is Json:
            return value
        if get_origin(hint) in (Union, types.UnionType):
            (inner,) = (argument for argument in get_args(hint) if argument is not types.NoneType)
            return None if value is None else self._as(inner, value, path)
        if get_origin(hint) in (tuple, Sequence):
            if not isinstance(value, list):
                _refuse(path, "a list")
            inner, *_ = get_args(hint)
            return tuple(self._as(inner, item, f"{path}[{at}]") for at, item in enumerate(value))
        if is_dataclass(hint) and hint is not Address:
            inside = JsonObject(
                value, path, readers=self._readers, lenient=self._lenient, newer=self._newer
            )
            return inside.whole(cast("type[object]", hint))
        return _scalar(hint, value, path)


def _scalar(hint: Any, value: object, path: str) -> object:
    if hint is bool:
        return value if isinstance(value, bool) else _refuse(path, "true or false")
    if hint is int:
        fits = (
            isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_NUMBER
        )
        return value if fits else _refuse(path, "a number of 0 or more")
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(path, "a number")
        return float(value)
    if get_origin(hint) is not None:  # Mapping[str, str]
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            _refuse(path, "an object of texts")
        return dict(value)
    if not isinstance(value, str):
        _refuse(path, "a text")
    try:
        return _from_text(hint, value)
    except ValueError:
        return _refuse(path, _example(hint))


def _from_text(hint: Any, text: str) -> object:
    if hint is datetime:
        moment = from_text(text)
        if moment.tzinfo is None:
            raise ValueError(text)
        return moment
    return Address.parse(text) if hint is Address else hint(text)


def _example(hint: Any) -> str:
    if hint is datetime:
        return "a time with its zone, such as `2026-01-31T12:00:00Z`"
    if hint is Address:
        return "an address such as `run.train`"
    return "one of " + ", ".join(f"`{word}`" for word in cast("type[StrEnum]", hint))


def _refuse(path: str, what: str) -> NoReturn:
    raise BadValue(path, f"is not {what}")
