"""Values to JSON and back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import inf, nan
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sgpu_decl.frozen_dataclass import FLAT, SOMETIMES, UNWRITTEN
from sgpu_decl.model.address import Address
from sgpu_decl.model.codec import BadValue, JsonObject, schema_of, to_json
from sgpu_decl.model.jsonable import Json


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Inner:
    number: int
    hours: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    colour: Colour
    at: datetime
    address: Address
    raw: Json
    facts: Mapping[str, str]
    inners: tuple[Inner, ...]
    beside: Inner = field(metadata=FLAT)
    seen: bool = field(default=False, metadata=UNWRITTEN)
    notes: tuple[str, ...] = field(default=(), metadata=SOMETIMES)


VALUE = Outer(
    name="a",
    colour=Colour.RED,
    at=datetime(2026, 5, 1, 12, tzinfo=UTC),
    address=Address.run("train"),
    raw={"x": [1, None]},
    facts={"k": "v"},
    inners=(Inner(number=1, hours=0.5), Inner(number=2)),
    beside=Inner(number=3),
)


def test_a_value_comes_back_as_it_was() -> None:
    written: Any = json.loads(json.dumps(to_json(VALUE)))
    assert written["number"] == 3
    assert "seen" not in written
    assert JsonObject(written).whole(Outer) == VALUE


def test_what_is_written_is_what_the_schema_of_its_type_says() -> None:
    schema = schema_of(Outer, {Inner: {"number": "How many."}})
    jsonschema.Draft202012Validator.check_schema(schema)
    for value in (VALUE, replace(VALUE, notes=("x",))):
        jsonschema.validate(to_json(value), schema)
    assert schema["properties"]["number"]["description"] == "How many."
    for wrong in ({"odd": 1}, {"colour": "blue"}, {"facts": {"k": 1}}, {"number": -1}, {"at": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**to_json(VALUE), **wrong}, schema)  # type: ignore[dict-item]


def test_what_is_written_sometimes_is_left_out_where_there_is_nothing() -> None:
    written: Any = to_json(VALUE)
    assert "notes" not in written
    assert JsonObject(written).whole(Outer) == VALUE
    more: Any = to_json(replace(VALUE, notes=("x",)))
    assert more["notes"] == ["x"]


def test_what_json_lacks_is_null_or_text() -> None:
    assert to_json((nan, -inf, 0.5, Path("/a"))) == [None, None, 0.5, "/a"]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("name", 1, "`name` is not a text"),
        ("colour", "blue", "`colour` is not one of `red`"),
        ("at", "2026-05-01T12:00:00", "`at` is not a time with its zone"),
        ("address", "train", "`address` is not an address"),
        ("facts", {"k": 1}, "`facts` is not an object of texts"),
        ("number", -1, "`number` is not a number of 0 or more"),
        ("number", True, "`number` is not a number of 0 or more"),
        ("inners", {}, "`inners` is not a list"),
        ("inners", [{"number": 1, "hours": "x"}], "`inners[0].hours` is not a number"),
        ("inners", [{"number": 1}], "`inners[0].hours` is missing"),
        ("odd", 1, "`odd` is not known"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(key: str, value: Json, problem: str) -> None:
    written: Any = to_json(VALUE)
    with pytest.raises(BadValue) as refused:
        JsonObject({**written, key: value}).whole(Outer)
    assert str(refused.value).startswith(problem)


def test_a_lenient_reader_takes_the_default_of_a_missing_key() -> None:
    assert JsonObject({"number": 1}, lenient=True).whole(Inner) == Inner(number=1)
    with pytest.raises(BadValue, match="`number` is missing"):
        JsonObject({}, lenient=True).whole(Inner)
