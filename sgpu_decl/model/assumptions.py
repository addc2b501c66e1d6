"""What sgpu assumes of Databricks and of Slurm, and profiles: what was found in one workspace.

`assumptions.yaml` has the facts. The workspace emulator behaves as a profile says, and `sgpu
doctor` writes one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

from sgpu_decl.frozen_dataclass import dataclass

Value = bool | int | float | str | tuple[str, ...]

PLATFORM_VARIABLES = (
    "DATABRICKS_",
    "LOCAL_WORLD_SIZE",
    "MASTER_",
    "MLFLOW_",
    "NODE_RANK",
    "NUM_NODES",
    "POD_RANK",
    "WORLD_SIZE",
)
"""How the names of variables begin that the platform sets on every node. Others are the image's."""


class Measure(StrEnum):
    """What finds out whether an assumption holds."""

    FREE = "free"
    PROBE = "probe"
    NODES = "nodes"


class Comparison(StrEnum):
    """When a measured value agrees with the expected one."""

    EQUAL = "equal"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    INCLUDES = "includes"
    VERSION = "version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One fact about the platform that sgpu counts on.

    Attributes:
        ids: what comments in the code call it, such as `A5`.
        assumed: in one sentence, without a full stop.
        evidence: its source, which is never sgpu itself.
        comparison: when a measured value agrees with `expected`.
        if_wrong: what happens then; `harmless` says that users need not care.
        measured_by: `None` where nothing measures it.
        emulated: whether the workspace emulator follows another value.
        known: other possible texts that identify nobody: a report may show them.
    """

    id: str
    ids: tuple[str, ...]
    assumed: str
    expected: Value
    evidence: str
    if_wrong: str
    measured_by: Measure | None
    comparison: Comparison = Comparison.EQUAL
    harmless: bool = False
    known: tuple[str, ...] = ()
    emulated: bool = True


@cache
def assumptions() -> Mapping[str, Assumption]:
    """All of them by id, in the order of the file."""
    import yaml

    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, object]] = yaml.safe_load(text)
    return MappingProxyType({id_: _read(id_, entry) for id_, entry in entries.items()})


def kind_of(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    return "a text" if isinstance(value, str) else "a list of texts"


def value_of(given: object) -> Value:
    """The value that JSON or YAML gives. Raises TypeError: it is none."""
    if isinstance(given, list):
        return tuple(map(str, given))
    if not isinstance(given, (bool, int, float, str)):
        raise TypeError(f"{given!r} is no value of an assumption")
    return given


def fits(assumption: Assumption, value: object) -> bool:
    """Whether a value is of the kind that is expected of an assumption."""
    if isinstance(value, tuple) and not all(isinstance(one, str) for one in value):
        return False
    known = isinstance(value, (bool, int, float, str, tuple))
    return known and kind_of(value) == kind_of(assumption.expected)


@dataclass(frozen=True, slots=True)
class Profile:
    """A workspace as it was found; what is not in `found` is as expected. Each reader raises
    KeyError for an unknown id, and TypeError for one of another kind."""

    found: Mapping[str, Value] = field(default_factory=dict)

    @property
    def not_emulated(self) -> tuple[str, ...]:
        """The ids of what was found to be other than expected, and what the workspace emulator
        does not follow."""
        known = assumptions()
        return tuple(
            id_
            for id_, value in self.found.items()
            if not known[id_].emulated and value != known[id_].expected
        )

    def value(self, id_: str) -> Value:
        assumption = assumptions()[id_]
        value = self.found.get(id_, assumption.expected)
        if not fits(assumption, value):
            raise TypeError(f"`{id_}` is {kind_of(assumption.expected)}, not {value!r}")
        return value

    def flag(self, id_: str) -> bool:
        value = self.value(id_)
        if not isinstance(value, bool):
            raise TypeError(f"`{id_}` is {kind_of(value)}")
        return value

    def number(self, id_: str) -> int | float:
        value = self.value(id_)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"`{id_}` is {kind_of(value)}")
        return value

    def text(self, id_: str) -> str:
        value = self.value(id_)
        if not isinstance(value, str):
            raise TypeError(f"`{id_}` is {kind_of(value)}")
        return value

    def texts(self, id_: str) -> tuple[str, ...]:
        value = self.value(id_)
        if not isinstance(value, tuple):
            raise TypeError(f"`{id_}` is {kind_of(value)}")
        return value


def _read(id_: str, entry: Mapping[str, object]) -> Assumption:
    expected, measure, ids = entry["expected"], entry.get("measured_by"), entry["ids"]
    return Assumption(
        id=id_,
        ids=_texts(ids),
        assumed=str(entry["assumed"]),
        expected=value_of(expected),
        evidence=str(entry["evidence"]),
        if_wrong=str(entry["if_wrong"]),
        measured_by=None if measure is None else Measure(str(measure)),
        comparison=Comparison(str(entry.get("comparison", "equal"))),
        harmless=entry.get("harmless") is True,
        known=_texts(entry.get("known", ())),
        emulated=entry.get("emulated") is not False,
    )


def _texts(given: object) -> tuple[str, ...]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{given!r} is no list")
    return tuple(str(one) for one in given)
