"""What the models refuse, in our words and with the place in the file."""

import re
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Parts
from dataclasses import replace
from typing import Any

from pydantic_core import ErrorDetails

from sgpu_decl.config.loaded import locate
from sgpu_decl.config.right_forms import value_hint
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.composer import one_line
from sgpu_decl.text.overrides import sources
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, children, resolve

# pydantic lists what a literal may be as `'a', 'b' or 'c'`.
_QUOTED = re.compile("'([^']*)'")
_TYPE_WORDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "float_type": "a number",
    "float_parsing": "a number",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorExplainer:
    """Explains errors about one node.

    Attributes:
        node: what was validated.
        shape: its shape, for the names that are known.
        prefix: the dotted path of the node in its file (`runs.train`), or empty.
        place: where the node is named: what is missing from it is missing there.
    """

    node: Mapping
    shape: Shape
    prefix: str
    place: Place

    def errors(self, details: Iterable[ErrorDetails]) -> tuple[Diagnostic, ...]:
        """One diagnostic for each error, the first of several about one value."""
        by_path: dict[object, Diagnostic] = {}
        for error in details:
            context = error.get("ctx", {})
            together: tuple[Diagnostic, ...] = context.get("all", ())
            for one in together:
                inside = replace(one, path=(*map(str, error["loc"]), *one.path))
                by_path[inside] = self.placed(inside)
            if not together:
                if error["type"] == "too_short" and self._has_members(error["loc"]):
                    continue  # pydantic counts valid members only; the others have their own error
                if error["type"] == "missing" and self._misspelt(error["loc"]):
                    continue
                if error["type"] == "extra_forbidden" and self._of_unnamed_kind(error["loc"]):
                    continue
                path, diagnostic = self._one(error, context)
                by_path.setdefault(path, diagnostic)
        return tuple(by_path.values())

    def _misspelt(self, loc: Parts[str | int]) -> bool:
        """Whether a missing key stands there under a name that is near."""
        block = self._walk(loc[:-1])
        return str(loc[-1]) in misspelt(block.node, self._shape_of(block))

    def _of_unnamed_kind(self, loc: Parts[str | int]) -> bool:
        """Whether a key belongs to another kind of block, and the kind has a misspelt name."""
        block = self._walk(loc[:-1])
        here = self._shape_of(block)
        return str(loc[-1]) in here.elsewhere and here.short in misspelt(block.node, here)

    def _shape_of(self, block: "_Spot") -> Shape:
        return (self.shape.at(block.parts) or Shape()).of_whole(block.node)

    def _has_members(self, loc: Parts[str | int]) -> bool:
        node = self._walk(loc).node
        return node is not None and bool(children(node))

    def placed(self, one: Diagnostic) -> Diagnostic:
        """A finding about a field of the node, with its place."""
        spot = self._walk(one.path)
        return replace(
            one,
            path=(),
            of_key=False,
            summary=one.summary if not self.prefix else f"{one.summary} (`{self.prefix}`)",
            place=(spot.key if one.of_key else spot.place),
            related=sources(spot.node) if spot.node is not None and one.path else (),
        )

    def _one(self, error: ErrorDetails, context: dict[str, Any]) -> tuple[object, Diagnostic]:
        kind = error["type"]
        loc = error["loc"]
        names_key = bool(loc) and loc[-1] == "[key]"
        spot = self._walk(loc[:-1] if names_key else loc)
        path = spot.path
        place = spot.key if names_key or kind == "extra_forbidden" else spot.place
        related = sources(spot.node) if spot.node is not None else ()
        is_short = isinstance(spot.node, Scalar) and spot.parts[-1:] != (str(loc[-1]),)
        if kind == "missing" and is_short:  # a name that is short for a block
            path = f"{path}.{loc[-1]}"
        name = f"`{path}`" if path else "the run"
        if context.get("ours"):
            summary = str(context["summary"]).replace("{path}", name)
            summary = summary.replace("{given}", _value_words(spot.node))
            hint = context["hint"]
            code = kind
        elif kind == "extra_forbidden":
            block = self._walk(loc[:-1])
            here = self._shape_of(block)
            return path, unknown_key(str(loc[-1]), here, spot.key, block.path, self.shape)
        else:
            code, summary, hint = self._words(kind, name, context, spot)
            hint = hint or self._explained(spot.parts)
        finding = Diagnostic(code=code, summary=summary, place=place, hint=hint, related=related)
        return path, finding

    def _words(
        self, kind: str, name: str, context: dict[str, Any], spot: "_Spot"
    ) -> tuple[str, str, str | None]:
        node = spot.node
        value = _value_words(node)
        path = ".".join(self._fields(spot.parts))
        path = path.removeprefix("defaults.job.").removeprefix("jobs.").removeprefix("tasks.")
        if kind == "missing" and value == "nothing":
            return "missing_key", f"{name} has no value", value_hint(path, node, "a value")
        if kind == "missing":
            return "missing_key", f"{name} is missing", f"add {name}"
        if kind in _TYPE_WORDS:
            if value == "nothing":
                hint = 'write a value; the empty text is ""'
                return "wrong_type", f"{name} must be {_TYPE_WORDS[kind]}, and has no value", hint
            quoted = isinstance(node, Scalar) and not node.plain and _TYPE_WORDS[kind] != "text"
            form = value_hint(path, node, _TYPE_WORDS[kind])
            way_out = "remove the quotes" if quoted and _fits(node, kind) else form
            return "wrong_type", f"{name} must be {_TYPE_WORDS[kind]}, not {value}", way_out
        if kind in ("literal_error", "enum"):
            known = _QUOTED.findall(str(context["expected"]))
            near = nearest(node.text, known) if isinstance(node, Scalar) else None
            names = ", ".join(f"`{one}`" for one in known)
            names = f"one of {names}" if len(known) > 1 else names
            guess = f"did you mean `{near}`?" if near else value_hint(path, node, names)
            return "unknown_value", f"{name} must be {names}, not {value}", guess
        if kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
            bound = next(iter(context.values()))
            words = {
                "greater_than_equal": f"at least {bound}",
                "greater_than": f"more than {bound}",
                "less_than_equal": f"at most {bound}",
                "less_than": f"less than {bound}",
            }[kind]
            return "out_of_range", f"{name} must be {words}, not {value}", None
        if kind == "string_pattern_mismatch":
            hint = "use letters, digits, `_` and `-`, a letter or digit first, at most 100"
            return "bad_name", f"{name} is not a valid name", hint
        if kind in ("too_short", "string_too_short"):
            return "empty_value", f"{name} is empty", "give it a value, or remove it"
        return "invalid_value", f"{name} cannot be {value}", None

    def _fields(self, parts: Parts[str]) -> list[str]:
        """The names of fields on the way to a value, without those that the user gave and the
        numbers of members."""
        names: list[str] = []
        shape: Shape | None = self.shape
        for part in parts:
            if shape is None:
                break
            if part in shape.keys:
                names.append(part)
                shape = shape.keys[part]
            else:
                shape = shape.values if shape.values is not None else shape.items
        return names

    def _explained(self, parts: Parts[str]) -> str:
        """Where the reader finds what a field takes."""
        root = "project" if "runs" in self.shape.keys else "run"
        if "notebook" in self.shape.keys:
            root = "project.jobs"
        elif "gpus" not in self.shape.keys and root == "run":
            root = "project.environments"
        return f"see `sgpu explain {'.'.join((root, *self._fields(parts)))}`"

    def _walk(self, loc: Parts[str | int]) -> "_Spot":
        """Follow an error's location through the nodes. Tags of unions stand in `<>`; what comes
        after a value that is not there, or a scalar, is pydantic's own."""
        node: Node = self.node
        place = key = self.place
        parts: list[str] = []
        for part in loc:
            if isinstance(node, Mapping) and isinstance(part, str) and part in node.entries:
                place, key = locate(node, part), node.keys[part]
                node = node.entries[part]
            elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
                place = key = locate(node, part)
                node = node.items[part]
            elif isinstance(part, str) and part.startswith("<"):
                continue
            elif isinstance(node, Scalar):
                break
            else:
                parts.append(str(part))
                return _Spot(None, key, key, tuple(parts), self._dotted(parts))
            parts.append(str(part))
        return _Spot(node, place, key, tuple(parts), self._dotted(parts))

    def _dotted(self, parts: Parts[str]) -> str:
        return ".".join(filter(None, (self.prefix, *parts)))


@dataclass(frozen=True, slots=True)
class _Spot:
    node: Node | None
    place: Place
    key: Place
    parts: tuple[str, ...]
    path: str


def misspelt(node: Node | None, shape: Shape) -> frozenset[str]:
    """The keys that a block lacks and that one of its unknown keys stands for: the unknown key is
    told, and what follows from the lack would be noise."""
    if not isinstance(node, Mapping) or not shape.closed:
        return frozenset()
    unknown = (key for key in node.entries if key not in shape.keys)
    return frozenset(
        field for key in unknown for field in _meant(key, shape) if field not in node.entries
    )


def _meant(key: str, shape: Shape) -> tuple[str, ...]:
    """The fields that an unknown key stands for: another tool's name for them, or nearly ours."""
    if key in shape.other_tools:
        return shape.other_tools[key].fields
    near = _nearest_key(key, shape)
    return (near,) if near is not None else ()


def _nearest_key(key: str, shape: Shape) -> str | None:
    """The field that was meant. `x-…` is never a misspelt field: other tools allow such keys."""
    return None if key.startswith("x-") else nearest(key, shape.keys)


def unknown_key(key: str, here: Shape, place: Place, parent: str, root: Shape) -> Diagnostic:
    """The finding for a key that a block does not have; `here` is the block, `parent` its path."""
    near = _nearest_key(key, here)
    # A key of a block that has the name of a field of another block means something else.
    home = _home(key, root) if here.keys == root.keys else None
    if key in here.elsewhere:
        hint = here.elsewhere[key]
    elif key in here.other_tools:
        hint = here.other_tools[key].hint
    elif near is not None:
        hint = f"did you mean `{near}`?"
    elif key.startswith("x-"):
        hint = "keys of your own are not supported: put the anchor at the first place that uses it"
    elif home is not None:
        hint = f"`{key}` belongs in `{home}`"
    elif (theirs := _other_tool_home(key, root)) is not None:
        hint = theirs
    elif "variables" in here.keys and key.isupper():
        hint = f"if it is an environment variable, write `variables: {{{key[:80]}: …}}` here"
    else:
        hint = f"known here: {', '.join(f'`{name}`' for name in here.keys)}"
    inside = f" in `{parent}`" if parent else ""
    return Diagnostic(
        code="unknown_key", summary=f"unknown key `{one_line(key)}`{inside}", place=place, hint=hint
    )


def unknown_keys(node: Node, shape: Shape, path: str) -> Iterator[Diagnostic]:
    """The keys in a partial block that its shape does not have."""
    if not isinstance(node, Mapping):
        return
    shape = shape.of(node)
    if shape.anything:
        return
    for key, value in node.entries.items():
        below = shape.below(key)
        if below is not None:
            yield from unknown_keys(value, below, f"{path}.{key}")
        elif shape.closed:
            yield unknown_key(key, shape, node.keys[key], path, shape)


def _home(key: str, root: Shape) -> str | None:
    """The first block of the root that has a key of this name, itself or in each of its entries."""
    for name, below in root.keys.items():
        if key in below.keys:
            return name
        if below.values is not None and key in below.values.keys:
            return f"{name}.NAME"
    return None


def _other_tool_home(key: str, root: Shape) -> str | None:
    """The hint for a name that another tool has for a key in the entries of a block of the root."""
    for name, below in root.keys.items():
        if below.values is not None and key in below.values.other_tools:
            return f"in `{name}.NAME`, {below.values.other_tools[key].hint}"
    return None


def _value_words(node: Node | None) -> str:
    """A value in words, short."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node is None:
        return "what is there"
    if node.plain and resolve(node.text) is None:
        return "nothing"
    shown = node.text if len(node.text) <= 40 else node.text[:37] + "…"
    shown = shown.replace("\n", "\\n")
    if node.plain:
        return f"`{shown}`"
    return f'the text `"{shown}"`'


def _fits(node: Node | None, kind: str) -> bool:
    """Whether the text in quotes would be right without them."""
    if not isinstance(node, Scalar):
        return False
    value = resolve(node.text)
    if kind.startswith("bool"):
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)
