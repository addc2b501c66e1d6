"""Cells of a matrix by the keys of their addresses."""

import pytest

from sgpu_decl.model.address import Address, cell_order, cell_positions, cell_texts, cell_values


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("", {}),
        ("lr=0.001,seed=1", {"lr": 0.001, "seed": 1}),
        ("on=true,x=null", {"on": True, "x": None}),
        ('a="x,b=1",b=2', {"a": "x,b=1", "b": 2}),
        (r'a="say \"no\", then"', {"a": 'say "no", then'}),
        ('a="b=c"', {"a": "b=c"}),
        ("a=NaN,b=1e-3", {"a": "NaN", "b": 0.001}),
        ('a="1"', {"a": "1"}),
        ("x", {}),
    ],
)
def test_a_key_gives_the_values_of_its_axes(key: str, values: dict[str, object]) -> None:
    assert cell_values(key) == values
    assert list(cell_texts(key)) == list(values)


def _cells(*keys: str) -> list[Address]:
    return [Address.run("s", key) for key in keys]


def test_a_position_is_the_index_of_each_value_in_its_axis() -> None:
    addresses = _cells("lr=0.1,seed=2", "lr=0.1,seed=1", "lr=0.01,seed=2", "lr=0.01,seed=1")
    assert list(cell_positions(addresses)) == ["0,0", "0,1", "1,0", "1,1"]
    assert list(cell_positions([Address.run("train")])) == [None]


def test_a_value_that_is_added_at_the_end_of_an_axis_moves_no_other_cell() -> None:
    before = _cells("lr=3,seed=1", "lr=3,seed=2", "lr=1,seed=1", "lr=1,seed=2")
    after = _cells(
        "lr=3,seed=1", "lr=3,seed=2", "lr=3,seed=9",
        "lr=1,seed=1", "lr=1,seed=2", "lr=1,seed=9",
    )  # fmt: skip
    recorded = dict(zip(before, cell_positions(before), strict=True))
    recorded |= {
        address: position
        for address, position in zip(after, cell_positions(after), strict=True)
        if address not in recorded
    }
    assert sorted(recorded, key=lambda one: cell_order(one, recorded[one])) == after


def test_many_values_are_sorted_as_numbers_and_names_come_first() -> None:
    cells = _cells(*(f"n={number}" for number in reversed(range(12))))
    positions = dict(zip(cells, cell_positions(cells), strict=True))
    other = Address.run("a")
    assert sorted([*cells, other], key=lambda one: cell_order(one, positions.get(one))) == [
        other,
        *cells,
    ]
