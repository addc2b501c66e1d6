"""What a file said, as JSON and back: whoever has it needs neither YAML nor pydantic.

A config comes back as plain blocks with the fields and properties of its model. That is enough for
planning on the default backend, which takes no options, and on backends whose options are `plain`;
those of other backends may be asked what they are. So a file with runs there is not remembered, nor
is one with jobs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from sgpu_decl.config.field_places import Places
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.loaded import Loaded, LoadedRun
from sgpu_decl.config.secrets import SecretRef
from sgpu_decl.config.text_types import Textual
from sgpu_decl.config.units import Duration, Size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.target import Mode
from sgpu_decl.text import yaml_nodes

if TYPE_CHECKING:
    from sgpu_decl.config.block import Block
    from sgpu_decl.config.run import RunConfig

__all__ = ["PlainBlock", "from_json", "to_json"]

_PLAIN = frozenset({type(None), bool, int, float, str})
_TEXTUAL: Mapping[str, type[Textual]] = {
    item.__name__: item for item in (Duration, Size, GpuType, SecretRef)
}


class PlainBlock:
    """A validated block without its model: its fields and properties, never changed."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"`{name}` of a config is never changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainBlock) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))


def to_json(loaded: Loaded, findings: Iterable[Diagnostic]) -> dict[str, Any] | None:
    """What a file said and what is worth saying about it, as JSON; `None` where it cannot come
    back as it was."""
    from sgpu_decl.config.run import RunConfig

    default = RunConfig.model_fields["backend"].default
    if loaded.jobs or not all(
        run.config.backend == default or run.config.backend.plain for run in loaded.runs
    ):
        return None
    writer = _Writer()
    runs = [writer.run(run) for run in loaded.runs]
    return {
        "kind": loaded.kind,
        "file": loaded.file,
        "project_name": loaded.project_name,
        "target": loaded.target,
        "config_digest": loaded.config_digest,
        "mode": str(loaded.mode),
        "production": loaded.production,
        "targets": loaded.targets,
        "included": loaded.included,
        "removed": [str(address) for address in loaded.removed],
        "findings": [_finding_json(finding) for finding in findings],
        "blocks": writer.blocks,
        "files": list(writer.files),
        "layouts": [json.dumps(layout) for layout in writer.layouts],
        "runs": runs,
    }


def from_json(data: Mapping[str, Any]) -> tuple[Loaded, tuple[Diagnostic, ...]]:
    """What `to_json` was given."""
    reader = _Reader(data)
    loaded = Loaded(
        kind=data["kind"],
        file=data["file"],
        project_name=data["project_name"],
        target=data["target"],
        runs=tuple(reader.run(*item) for item in data["runs"]),
        config_digest=data["config_digest"],
        mode=Mode(data["mode"]),
        production=data["production"],
        targets=tuple(data["targets"]),
        included=tuple(data["included"]),
        removed=tuple(map(Address.parse, data["removed"])),
    )
    return loaded, tuple(map(_finding, data["findings"]))


class _Writer:
    """What equal runs have in common is written once: blocks, as what differs from the first one of
    their model, and layouts, which are the places in a run's block from its first line on, in the
    file of the block."""

    def __init__(self) -> None:
        from sgpu_decl.config.block import Block

        self._model = Block
        self._indexes: dict[int, int] = {}
        self._texts: dict[str, int] = {}
        self._first: dict[type[Block], tuple[int, dict[str, object]]] = {}
        self._layouts_of: dict[int, tuple[int, int, int]] = {}
        self._kept: list[object] = []  # so that no other object gets the id of one that went
        self.blocks: list[tuple[int | None, dict[str, Any]]] = []
        self.files: dict[str, int] = {}
        self.layouts: dict[tuple[tuple[str | int, ...], ...], int] = {}

    def run(self, run: LoadedRun) -> list[Any]:
        places = run.places
        assert isinstance(places, Places)  # noqa: S101  those of a run that was read
        layout, file, line = self._layout(places.node)
        more = [[path, *_place_json(place)] for path, place in places.more.items()]
        address = run.address
        block = self._block(run.config)
        return [address.name, address.key, run.spec, block, layout, file, line, more]

    def _layout(self, node: yaml_nodes.Mapping) -> tuple[int, int, int]:
        if id(node) not in self._layouts_of:  # cells of a matrix share theirs
            self._kept.append(node)
            line, file = node.line, node.file
            layout = tuple(
                (path, item.line - line, item.column)
                if item.file == file
                else (path, item.line, item.column, item.file)
                for path, item in Places(node).written().items()
            )
            index = self.layouts.setdefault(layout, len(self.layouts))
            self._layouts_of[id(node)] = index, self.files.setdefault(file, len(self.files)), line
        return self._layouts_of[id(node)]

    def _block(self, block: "Block") -> int:
        if id(block) in self._indexes:
            return self._indexes[id(block)]
        self._kept.append(block)
        values = {name: getattr(block, name) for name in _attributes(type(block))}
        base: int | None = None
        written: dict[str, Any]
        if type(block) in self._first:
            base, others = self._first[type(block)]
            written = {
                name: self._value(value)
                for name, value in values.items()
                if value is not others[name] and not (type(value) is str and value == others[name])
            }
        else:
            written = {name: self._value(value) for name, value in values.items()}
        index = self._texts.setdefault(json.dumps([base, written]), len(self.blocks))
        if index == len(self.blocks):
            self.blocks.append((base, written))
            self._first.setdefault(type(block), (index, values))
        self._indexes[id(block)] = index
        return index

    def _value(self, value: object) -> Any:
        if type(value) in _PLAIN:
            return value
        match value:
            case StrEnum():
                return str(value)
            case Textual():
                return {type(value).__name__: str(value)}
            case tuple():
                return {"tuple": [self._value(item) for item in value]}
            case list():
                return {"list": [self._value(item) for item in value]}
            case dict():
                return {"mapping": {key: self._value(item) for key, item in value.items()}}
        if isinstance(value, self._model):
            return {"block": self._block(value)}
        raise TypeError(f"a config holds a `{type(value).__name__}`")


class _Reader:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self._files: list[str] = data["files"]
        self._layouts: list[str] = data["layouts"]
        self._blocks: list[PlainBlock] = []
        for base, own in data["blocks"]:
            values = {name: self._value(item) for name, item in own.items()}
            inherited = self._blocks[base].__dict__ if base is not None else {}
            self._blocks.append(PlainBlock({**inherited, **values}))

    def run(
        self,
        name: str,
        key: str,
        spec: str,
        block: int,
        layout: int,
        file: int,
        line: int,
        more: list[tuple[str, str, int, int]],
    ) -> LoadedRun:
        return LoadedRun(
            address=Address.run(name, key),
            config=cast("RunConfig", self._blocks[block]),
            places=_PlainPlaces(self._files[file], self._layouts[layout], line, more),
            spec=spec,
        )

    def _value(self, value: Any) -> object:
        if not isinstance(value, dict):
            return value
        ((kind, held),) = value.items()
        match kind:
            case "block":
                return self._blocks[held]
            case "tuple":
                return tuple(map(self._value, held))
            case "list":
                return list(map(self._value, held))
            case "mapping":
                return {key: self._value(item) for key, item in held.items()}
        return _textual(kind, held)


class _PlainPlaces(Mapping[str, Place]):
    """The places of a run; its layout is read when the first of them is asked for."""

    __slots__ = ("_file", "_layout", "_line", "_more", "_table")

    def __init__(
        self, file: str, layout: str, line: int, more: list[tuple[str, str, int, int]]
    ) -> None:
        self._file = file
        self._layout = layout
        self._line = line
        self._more = more
        self._table: dict[str, Place] | None = None

    def _places(self) -> dict[str, Place]:
        if self._table is None:
            table = {}
            for path, line, column, *elsewhere in json.loads(self._layout):
                table[path] = (
                    Place(elsewhere[0], line, column)
                    if elsewhere
                    else Place(self._file, self._line + line, column)
                )
            for path, file, line, column in self._more:
                table[path] = Place(file, line, column)
            self._table = table
        return self._table

    def __getitem__(self, path: str) -> Place:
        return self._places()[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places())

    def __len__(self) -> int:
        return len(self._places())


@cache
def _textual(kind: str, text: str) -> Textual:
    return _TEXTUAL[kind].read(text)


@cache
def _attributes(model: "type[Block]") -> tuple[str, ...]:
    """The fields of a model and what it derives from them."""
    from sgpu_decl.config.block import Block

    derived = (
        name
        for above in model.__mro__
        if issubclass(above, Block)
        for name, var in vars(above).items()
        if isinstance(var, property)
    )
    return (*model.model_fields, *derived)


def _place_json(place: Place) -> list[str | int]:
    return [place.file, place.line, place.column]


def _finding_json(finding: Diagnostic) -> list[Any]:
    place = _place_json(finding.place) if finding.place else None
    related = [[*_place_json(item.place), item.note] for item in finding.related]
    return [finding.code, finding.summary, str(finding.severity), place, finding.hint, related]


def _finding(data: list[Any]) -> Diagnostic:
    code, summary, severity, place, hint, related = data
    return Diagnostic(
        code=code,
        summary=summary,
        severity=Severity(severity),
        place=Place(*place) if place is not None else None,
        hint=hint,
        related=tuple(Related(place=Place(*place), note=note) for *place, note in related),
    )
