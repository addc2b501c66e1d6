"""How a resource is named: `run.train`, `run.train["lr=0.001,seed=1"]`; the values of a cell of a
matrix by the key of its address."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NoReturn

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json

NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_ADDRESS = re.compile(rf'(run|job|environment)\.({NAME})(?:\["(.*)"\])?', re.DOTALL)


class Kind(StrEnum):
    RUN = "run"
    JOB = "job"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`key` is the canonical key of a matrix cell, or empty."""

    kind: Kind
    name: str
    key: str = ""

    def __str__(self) -> str:
        return f'{self.kind}.{self.name}["{self.key}"]' if self.key else f"{self.kind}.{self.name}"

    def __hash__(self) -> int:
        """Without `kind`, whose hash is slow: plans look addresses up a hundred thousand times."""
        return hash((self.name, self.key))

    @property
    def label(self) -> str:
        """The name a person says: `train`, or `train["lr=0.001"]`."""
        return str(self).partition(".")[2]

    @property
    def folder(self) -> str:
        """The name of the run's folder: `train`, or `train@<hash8>` for a matrix cell."""
        if not self.key:
            return self.name
        import hashlib  # with OpenSSL, which takes 2 ms

        return f"{self.name}@{hashlib.sha256(self.key.encode()).hexdigest()[:8]}"

    @classmethod
    def run(cls, name: str, key: str = "") -> "Address":
        return cls(Kind.RUN, name, key)

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read the text form.

        Raises:
            ValueError: the text is no address.
        """
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text}` is not an address such as `run.train`")
        return cls(Kind(match[1]), match[2], match[3] or "")


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
