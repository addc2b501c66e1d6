"""The table of a tool, and how it is applied to a file: each field comes out once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.importing.foreign_file import ForeignField, ForeignFile, NotOneValue, at
from sgpu_decl.importing.translation import Keys, Translation, carried, lost
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.yaml_nodes import Node, Scalar, is_nothing, place_of

Rule: TypeAlias = Callable[[ForeignField], Translation]

ANY, EACH = "*", "#"
"""In the path of a field: any key of a mapping, and any index of a list."""

_Keys: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTool:
    """What a tool says in its files, and how sgpu says it.

    Attributes:
        what: the file, in words.
        fields: the rules of its fields, by their paths.
        absent: what the tool does where a field is missing, by the path of that field. The rule
            gets the block in the place of the field.
        empty: the fields that say something even if they are `null`.
    """

    what: str
    fields: Mapping[str, Rule]
    absent: Mapping[str, Rule]
    empty: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTranslation:
    """A field of the file, by its path, and what becomes of it. A default has no place: the file
    does not say it."""

    path: Keys
    translation: Translation
    place: Place | None = None


def translated(
    tool: ForeignTool, block: yaml_nodes.Mapping, file: ForeignFile, start: Keys = ()
) -> tuple[list[FieldTranslation], list[FieldTranslation]]:
    """The fields of a block and what becomes of them, in their order, and the defaults of the tool
    for fields that are missing.

    Args:
        start: where the block stands in the file.
    """
    table = {tuple(path.split(".")): rule for path, rule in tool.fields.items()}
    fields = [
        FieldTranslation(path=(*start, *map(str, path)), translation=one, place=place)
        for path, one, place in _walk(tool, table, block, block, file, ())
    ]
    defaults = [
        FieldTranslation(
            path=(*start, *path.split(".")),
            translation=rule(ForeignField(path=(path,), node=block, file=file, block=block)),
        )
        for path, rule in tool.absent.items()
        if at(block, path) is None
    ]
    return fields, [one for one in defaults if one.translation.puts or one.translation.note]


def _walk(
    tool: ForeignTool,
    table: Mapping[Keys, Rule],
    node: Node,
    block: yaml_nodes.Mapping,
    file: ForeignFile,
    path: _Keys,
) -> Iterator[tuple[_Keys, Translation, Place]]:
    found = next((known for known in table if _fits(known, path)), None)
    deeper = any(len(known) > len(path) and _fits(known[: len(path)], path) for known in table)
    members = _members(node) if deeper else []
    if members:  # the rules of what is in a block come before that of the block
        for key, member in members:
            yield from _walk(tool, table, member, block, file, (*path, key))
    elif found is not None:
        nothing = is_nothing(node) and ".".join(found) not in tool.empty
        names = tuple(map(str, path))
        field = ForeignField(path=names, node=node, file=file, block=block)
        yield path, carried() if nothing else _said(table[found], field), place_of(node)
    elif deeper and (is_nothing(node) or not isinstance(node, Scalar)):
        yield path, carried(), place_of(node)  # an empty block says nothing
    else:
        yield path, _unknown(tool, table, path), place_of(node)


def _said(rule: Rule, field: ForeignField) -> Translation:
    try:
        return rule(field)
    except NotOneValue:
        return lost("it is a list or a mapping, and not one value", "write the value")


def _members(node: Node) -> Sequence[tuple[str | int, Node]]:
    if isinstance(node, yaml_nodes.Mapping):
        return [*node.entries.items()]
    return [*enumerate(node.items)] if isinstance(node, yaml_nodes.Sequence) else []


def _fits(known: Keys, path: _Keys) -> bool:
    return len(known) == len(path) and all(
        one in (str(key), ANY if isinstance(key, str) else EACH)
        for one, key in zip(known, path, strict=True)
    )


def _unknown(tool: ForeignTool, table: Mapping[Keys, Rule], path: _Keys) -> Translation:
    beside = {
        known[len(path) - 1]
        for known in table
        if len(known) >= len(path) and _fits(known[: len(path) - 1], path[:-1])
    }
    near = nearest(str(path[-1]), beside - {ANY, EACH}) if path else None
    return lost(
        f"{tool.what} has no such field, as far as sgpu knows",
        f"did you mean `{near}`?" if near else "`sgpu explain run` lists the fields of a run",
    )
