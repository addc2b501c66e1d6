"""From nodes to the plain values that models take, guided by the models.

YAML gives a scalar its type by how it looks; a field that wants text wants it as written instead.
Which fields those are is derived once from the models.
"""

import types
from collections.abc import Iterable
from collections.abc import Mapping as Names
from dataclasses import field, replace
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from sgpu_decl.config.backend import DEFAULT, BackendOptions, known_options, options_of
from sgpu_decl.config.block import Block, FilePath
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.text_types import Textual
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.tokens import SHORTEST, find_token, mask_found
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.shape import ANY, TEXT, Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, is_null, place_of, resolve

_NOT_TEXT = (bool, int, float)


def shape_of(annotation: object) -> Shape:
    """The shape of a type annotation, unions merged."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _with_path(shape_of(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return TEXT if all(isinstance(value, str) for value in arguments) else Shape()
    if origin is dict:
        return Shape(values=shape_of(arguments[1]))
    if origin in (tuple, list):
        return Shape(items=shape_of(arguments[0]))
    if annotation is Any or annotation is JsonValue:
        return ANY
    if isinstance(annotation, type):
        if annotation is BackendOptions:
            return _backend_shape()
        if issubclass(annotation, BaseModel):
            fields = annotation.model_fields
            keys = {name: _shape_of_field(info) for name, info in fields.items()}
            if not issubclass(annotation, Block):
                return Shape(keys=keys)
            elsewhere = {name: f"remove it: {why}" for name, why in annotation.elsewhere.items()}
            return Shape(
                keys=keys,
                short=annotation.short,
                whole=annotation.whole,
                elsewhere=elsewhere,
                other_tools=annotation.other_tools,
            )
        if issubclass(annotation, str | Textual):
            return TEXT
    return Shape()


def _shape_of_field(info: FieldInfo) -> Shape:
    """pydantic takes the annotation apart: what stood beside the type is its `metadata`."""
    return _with_path(shape_of(info.annotation), info.metadata)


def _with_path(shape: Shape, metadata: Iterable[object]) -> Shape:
    path = next((item for item in metadata if isinstance(item, FilePath)), None)
    return shape if path is None else replace(shape, path=path.moved)


def _union(members: tuple[object, ...]) -> Shape:
    shapes = [shape_of(member) for member in members]
    # Where a number may stand too, the looks of a scalar decide.
    typed = any(_bare(member) in _NOT_TEXT for member in members)
    if any(shape.anything for shape in shapes):
        return ANY
    return Shape(
        text=not typed and any(shape.text for shape in shapes),
        path=next((shape.path for shape in shapes if shape.path is not None), None),
        keys={key: below for shape in shapes for key, below in shape.keys.items()},
        values=next((shape.values for shape in shapes if shape.values is not None), None),
        items=next((shape.items for shape in shapes if shape.items is not None), None),
        short=next((shape.short for shape in shapes if shape.short is not None), None),
        whole=any(shape.whole for shape in shapes),
        variant=next((shape.variant for shape in shapes if shape.variant is not None), None),
        elsewhere={key: why for shape in shapes for key, why in shape.elsewhere.items()},
        other_tools={key: ours for shape in shapes for key, ours in shape.other_tools.items()},
    )


def _backend_shape() -> Shape:
    """The shape of any `backend` block; its `variant` is that of one kind."""
    keys = {
        name: _shape_of_field(info)
        for options in known_options().values()
        for name, info in options.model_fields.items()
    }
    return Shape(keys=keys, short=BackendOptions.short, variant=_shape_of_kind)


@cache
def _shape_of_kind(kind: str | None) -> Shape:
    named = kind or DEFAULT
    try:
        own = options_of(named)
    except BackendError:
        return ANY  # validation says it
    elsewhere = {
        name: _other_kind(other, named) if kind else f"add `kind: {other}`, which has this option"
        for other, options in known_options().items()
        for name in options.model_fields.keys() - own.model_fields.keys()
    }
    shape = shape_of(own)
    return replace(shape, elsewhere={**elsewhere, **shape.elsewhere})


def _other_kind(other: str, named: str) -> str:
    return (
        f"remove it: it belongs to `backend: {{kind: {other}}}`; a target that changes the backend "
        f"writes `backend: {named}`, which replaces the whole block"
    )


def _bare(annotation: object) -> object:
    return _bare(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


@cache
def run_shape() -> Shape:
    return shape_of(RunConfig)


@cache
def project_shape() -> Shape:
    return shape_of(ProjectFile)


@dataclass(slots=True)
class Conversion:
    """Turns nodes into plain values; `found` collects values that no field may hold. `folders` has
    the folder of each file in a folder of the project: paths in it get that folder before them."""

    folders: Names[str, str] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)

    def plain(self, node: Node, shape: Shape | None) -> Any:  # pydantic takes anything
        """The plain value of a node: text as written where the shape says so; an empty value in a
        block means that the field is not given."""
        if isinstance(node, Scalar):
            return self._scalar(node, shape)
        if isinstance(node, Mapping):
            shape = shape and shape.of(node)
            if shape is None or not shape.closed:
                values = None if shape is None else shape if shape.anything else shape.values
                return {key: self.plain(value, values) for key, value in node.entries.items()}
            keys = shape.keys
            block: dict[str, Any] = {}
            for key, value in node.entries.items():
                below = keys.get(key)
                if not isinstance(value, Scalar):
                    block[key] = self.plain(value, below)
                elif below is None or not value.plain or not is_null(value.text):
                    block[key] = self._scalar(value, below)
            return block
        items = None if shape is None else shape if shape.anything else shape.items
        return [self.plain(item, items) for item in node.items]

    def _scalar(self, node: Scalar, shape: Shape | None) -> Any:
        text = shape is not None and shape.text
        written = node.text
        if len(written) >= SHORTEST:
            kind = find_token(written)
            if kind is not None:
                self._note(
                    "literal_token",
                    f"this looks like {kind}, in plain text",
                    node,
                    "keep it out of the file: `env: {secrets: {NAME: env:NAME}}`",
                )
                return mask_found(written)
        if self.folders and shape is not None and shape.path is not None:
            folder = self.folders.get(node.file)
            if folder and not (node.plain and is_null(written)):
                return shape.path(written, folder)
        if not node.plain:
            return written
        if text:
            return None if is_null(written) else written
        value = resolve(written)
        if isinstance(value, float) and not isfinite(value):
            self._note(
                "not_finite",
                f"`{written[:40]}` is not a finite number",
                node,
                "put it in quotes where text is meant",
            )
            return 0.0
        return value

    def _note(self, code: str, summary: str, node: Scalar, hint: str) -> None:
        self.findings.append(
            Diagnostic(code=code, summary=summary, place=place_of(node), hint=hint)
        )
