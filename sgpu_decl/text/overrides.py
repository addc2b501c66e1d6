"""Overrides: a target over the file, `--set` over both. Every replaced value stays known."""

import re
from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.file_limits import RUN_FILE
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, is_null, place_of
from sgpu_decl.text.yaml_reader import load

_COLLECTION = re.compile(r"\s*[\[{]")


def merge(base: Node, over: Node, shape: Shape | None) -> Node:
    """Lay `over` on `base`: mappings are merged key by key, anything else is replaced, and so are
    `whole` blocks. What is written short below a mapping is taken for the block that it stands
    for."""
    if isinstance(over, Mapping):
        base = in_full(base, shape)
    whole = shape is not None and shape.whole
    if whole or not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return _replacing(over, base)
    entries, keys = dict(base.entries), dict(base.keys)
    for key, value in over.entries.items():
        if key in entries:
            entries[key] = merge(entries[key], value, shape.below(key) if shape else None)
            if not isinstance(entries[key], Mapping):
                keys[key] = over.keys[key]
        else:
            entries[key], keys[key] = value, over.keys[key]
    return replace(base, entries=entries, keys=keys)


def in_full(node: Node, shape: Shape | None) -> Node:
    """The block that a scalar is short for (`backend: ray`), or the node itself."""
    short = shape.short if shape is not None else None
    if short is None or not isinstance(node, Scalar) or (node.plain and is_null(node.text)):
        return node
    return Mapping({short: node}, {short: place_of(node)}, node.line, node.column, node.file)


def sources(node: Node) -> tuple[Related, ...]:
    """The places of the values that filled this one's references, then of those that it replaced,
    the latest first."""
    related = [
        Related(place=place_of(one), note="its value comes from here") for one in filled_by(node)
    ]
    before = node.before
    while before is not None:
        related.append(Related(place=place_of(before), note="it overrides the value here"))
        before = before.before
    return tuple(related)


def filled_by(node: Node) -> Iterator[Scalar]:
    """The values that references in a scalar stood for, and those behind them."""
    for value in node.filled if isinstance(node, Scalar) else ():
        yield value
        yield from filled_by(value)


def from_option(text: str, option: str) -> Node:
    """The value of a `--set` or `--var` option: a scalar as if unquoted, or a list or mapping in
    brackets. `option` (`--set env.python`) stands for the file in places."""
    if _COLLECTION.match(text):
        document, findings = load(f"value: {text}", option, limits=RUN_FILE)
        if document is not None and not findings and list(document.root.entries) == ["value"]:
            return document.root.entries["value"]
    return Scalar(text, True, 1, 1, option)  # noqa: FBT003


def set_value(
    root: Mapping, path: str, value: str, shape: Shape
) -> tuple[Mapping, tuple[Diagnostic, ...]]:
    """Apply one `--set path=value`.

    Returns:
        The changed root, or the same root and why the path cannot be set.
    """
    option = f"--set {path}"
    parts = tuple(path.split("."))
    wrong = _refuse(parts, path, option, shape)
    if wrong is not None:
        return root, (wrong,)
    node: Node | None = root
    for part in parts[:-1]:
        node = node.entries.get(part) if isinstance(node, Mapping) else None
        if node is not None and not isinstance(node, Mapping) and not isinstance(node, Scalar):
            return root, (
                Diagnostic(
                    code="path_in_list",
                    summary=f"`{part}` is a list: its members cannot be set one by one",
                    place=Place(option, 1, 1),
                    hint=f"set the whole list: `--set {path.partition(part)[0]}{part}=[…]`",
                ),
            )
    changed = _put(root, parts, from_option(value, option), option, shape)
    return changed, ()


_OTHER_OPTIONS = {
    "variables": "give a variable its value with `--var NAME=VALUE`",
    "targets": "choose a target with `-t NAME`, and set the field itself",
    "include": "files are read before options: name them in the file",
    "mode": "the file or a target says it: choose a target with `-t NAME`",
    "project": "the state belongs to the project that the file names",
    "state": "the state is found before options are read: the file or a target says where it is",
}


def _refuse(parts: tuple[str, ...], path: str, option: str, shape: Shape) -> Diagnostic | None:
    here: Shape = shape
    for index, part in enumerate(parts):
        known = part and not (index == 0 and part in _OTHER_OPTIONS)
        below = here.below(part) if known else None
        if below is None and here.variant is not None:
            return None  # what the block is for may be said elsewhere
        if below is None:
            near = nearest(part, here.keys)
            better = ".".join((*parts[:index], near, *parts[index + 1 :])) if near else None
            names = ", ".join(f"`{key}`" for key in list(here.keys)[:40])
            hint = _OTHER_OPTIONS.get(parts[0]) or (f"did you mean `{better}`?" if better else None)
            if part in here.other_tools:
                hint = here.other_tools[part].hint
            return Diagnostic(
                code="unknown_path",
                summary=f"there is no `{path}` to set",
                place=Place(option, 1, 1),
                hint=hint or (f"known here: {names}" if names else "a path is dotted: `args.lr`"),
            )
        here = below
    return None


def _put(
    root: Mapping, parts: tuple[str, ...], value: Node, option: str, shape: Shape | None
) -> Mapping:
    key, rest = parts[0], parts[1:]
    below = shape.below(key) if shape else None
    old = root.entries.get(key)
    if rest and old is not None:
        old = in_full(old, below)
    if not rest:
        new = value if old is None else _replacing(value, old)
    elif isinstance(old, Mapping):
        new = _put(old, rest, value, option, below)
    else:
        new = _put(Mapping({}, {}, 1, 1, option, old), rest, value, option, below)
    place = root.keys[key] if isinstance(new, Mapping) and key in root.keys else place_of(value)
    return replace(root, entries={**root.entries, key: new}, keys={**root.keys, key: place})


def _replacing(new: Node, old: Node) -> Node:
    if new.before is not None:
        return new
    return new._replace(before=old) if isinstance(new, Scalar) else replace(new, before=old)
