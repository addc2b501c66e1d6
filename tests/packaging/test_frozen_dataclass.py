"""A dataclass of `frozen_dataclass` behaves as one of `dataclasses`."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any

import pytest

from sgpu_decl.frozen_dataclass import dataclass as fast


@fast(frozen=True, slots=True, kw_only=True)
class Fast:
    name: str
    count: int = 0
    parts: dict[str, int] = field(default_factory=dict, compare=False, hash=False)
    hidden: str = field(default="x", repr=False)

    @property
    def label(self) -> str:
        return f"{self.name}:{self.count}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    name: str
    count: int = 0
    parts: dict[str, int] = field(default_factory=dict, compare=False, hash=False)
    hidden: str = field(default="x", repr=False)


@fast(frozen=True, slots=True)
class Positional:
    first: int
    second: str = "b"


@fast(frozen=True, slots=True)
class Empty:
    pass


def test_it_has_the_signature_and_the_text_of_a_dataclass() -> None:
    names = list(inspect.signature(Slow).parameters)
    assert list(inspect.signature(Fast).parameters) == names
    assert repr(Fast(name="a", count=2)) == repr(Slow(name="a", count=2)).replace("Slow", "Fast")
    assert (Positional(1), repr(Positional(1, "c"))) == (
        Positional(first=1, second="b"),
        "Positional(first=1, second='c')",
    )
    assert Fast(name="a").label == "a:0"
    assert not hasattr(Fast(name="a"), "__dict__")


def test_equality_and_hash_are_those_of_the_compared_fields() -> None:
    one, same, other = Fast(name="a", parts={"x": 1}), Fast(name="a"), Fast(name="a", count=1)
    assert one == same
    assert hash(one) == hash(same) == hash(Slow(name="a"))
    assert one != other
    slow: object = Slow(name="a")
    assert Fast(name="a") != slow
    assert Empty() == Empty()
    assert {Positional(1): 1}[Positional(1)] == 1


def test_each_value_gets_a_default_of_its_own() -> None:
    assert Fast(name="a").parts is not Fast(name="a").parts


def test_a_value_never_changes() -> None:
    value = Fast(name="a")
    for change in (lambda: setattr(value, "name", "b"), lambda: delattr(value, "name")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="field 'name'"):
            change()
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.further = 1  # type: ignore[attr-defined]
    assert value.name == "a"


@pytest.mark.parametrize("values", [{}, {"name": "a", "unknown": 1}])
def test_wrong_arguments_are_named(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as slow:
        Slow(**values)
    with pytest.raises(TypeError) as quick:
        Fast(**values)
    assert str(quick.value) == str(slow.value).replace("Slow", "Fast")


def test_it_is_copied_pickled_replaced_and_read_field_by_field() -> None:
    value = Fast(name="a", count=3, parts={"x": 1}, hidden="y")
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert (again, again.parts, again.hidden) == (value, {"x": 1}, "y")
    assert dataclasses.replace(value, count=4) == Fast(name="a", count=4, hidden="y")
    assert dataclasses.asdict(value) == dataclasses.asdict(
        Slow(name="a", count=3, parts={"x": 1}, hidden="y")
    )
    match Positional(1, "c"):
        case Positional(first, second):
            assert (first, second) == (1, "c")


@pytest.mark.parametrize(
    "options",
    [
        {"slots": True},
        {"frozen": True},
        {"frozen": True, "slots": True, "order": True},
        {"frozen": True, "slots": True, "eq": False},
    ],
)
def test_other_options_are_left_to_dataclasses(options: dict[str, bool]) -> None:
    class Plain:
        size: int

    made: Any = fast(**options)(Plain)
    assert made(1).size == 1
    params = made.__dataclass_params__
    assert {name: getattr(params, name) for name in options if name != "slots"} == {
        name: value for name, value in options.items() if name != "slots"
    }


def test_a_class_below_another_dataclass_has_the_fields_of_both() -> None:
    @fast(frozen=True, slots=True, kw_only=True)
    class Below(Fast):
        more: int = 5

    value = Below(name="a", more=6)
    assert (value.name, value.more) == ("a", 6)
    assert value == dataclasses.replace(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.more = 7  # type: ignore[misc]


def test_what_it_does_not_know_is_left_to_dataclasses() -> None:
    @fast(frozen=True, slots=True)
    class Checked:
        size: int

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError(self.size)

    @fast(frozen=True, slots=True)
    class Counted:
        size: int
        twice: int = field(init=False, default=2)

    @fast(frozen=True, slots=True)
    class Folded:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

    with pytest.raises(ValueError, match="-1"):
        Checked(-1)
    assert list(inspect.signature(Counted).parameters) == ["size"]
    assert {Folded("A"), Folded("a")} == {Folded("a")}


def test_a_dataclass_without_slots_below_it_is_copied_whole() -> None:
    @dataclasses.dataclass(frozen=True)
    class Below(Positional):
        third: int = 1

    assert copy.copy(Below(1, third=7)).third == 7
