"""The cells of a matrix, by the keys of their addresses: `lr=0.001,seed=1`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NoReturn

from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import Json

_PART = re.compile(r'([^=,]+)=("(?:[^"\\]|\\.)*"|[^,]*)(?:,|$)', re.DOTALL)


def cell_texts(key: str) -> dict[str, str]:
    """The values of a cell by axis, each as the address shows it; empty for a run without matrix.
    Text with other signs than those of names and numbers stands in quotes there. A key that `state
    mv` gave may have no axes."""
    return {match[1]: match[2] for match in _PART.finditer(key)}


def cell_values(key: str) -> dict[str, Json]:
    """The values of a cell by axis: `{"lr": 0.001, "seed": 1}`."""
    return {axis: _value(text) for axis, text in cell_texts(key).items()}


def cell_positions(addresses: Iterable[Address]) -> Iterator[str | None]:
    """Where each cell stands in its matrix: the index of each of its values in its axis, such as
    `0,2`; None for a run without matrix. The addresses come in the order of the file."""
    axes: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for address in addresses:
        texts = cell_texts(address.key)
        indices = []
        for axis, text in texts.items():
            values = axes[address.name, axis]
            indices.append(str(values.setdefault(text, len(values))))
        yield ",".join(indices) or None


def cell_order(address: Address, position: str | None) -> tuple[str, tuple[int, ...], str]:
    """What addresses are sorted by, so that the cells of a matrix stand in the order of the file:
    by the `cell_positions` of the last launch, as far as it has one."""
    indices = tuple(map(int, position.split(","))) if position else ()
    return f"{address.kind}.{address.name}", indices, address.key


def _value(text: str) -> Json:
    try:
        value: Json = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)  # `NaN` is a word in an address
