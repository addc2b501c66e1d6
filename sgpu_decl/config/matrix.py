"""One run for each combination of a matrix's values."""

import itertools
import math
import re
from collections.abc import Iterator

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, Sequence, Value, place_of, resolve

_MOST = 100_000
_SIMPLE = re.compile(r"[A-Za-z0-9_./:@+-]+")

Axes = dict[str, tuple[Scalar, ...]]


@dataclass(frozen=True, slots=True)
class Cell:
    """`key` names the combination (`lr=0.001,seed=1`); `values` has each axis' node, sorted."""

    key: str
    values: dict[str, Scalar]


def read_axes(node: Mapping) -> tuple[Axes | None, tuple[Diagnostic, ...]]:
    """The axes of a matrix that its model accepts, sorted by name; `None` where a value is written
    twice or the combinations are too many."""
    findings: list[Diagnostic] = []
    axes: Axes = {}
    for name in sorted(node.entries):
        values = node.entries[name]
        first: dict[object, Scalar] = {}
        for value in values.items if isinstance(values, Sequence) else ():
            if not isinstance(value, Scalar):
                continue
            same = first.setdefault(_compared(value), value)
            if same is not value:
                text, other = shown(value), shown(same)
                twice = f"has `{text}` twice" if text == other else f"has `{other}` and `{text}`"
                findings.append(
                    Diagnostic(
                        code="duplicate_cell",
                        summary=f"the axis `{name}` {twice}"
                        + ("" if text == other else ", which are equal"),
                        place=place_of(value),
                        hint="keep one of them: each combination is one run",
                        related=(Related(place=place_of(same), note="first written here"),),
                    )
                )
        axes[name] = tuple(first.values())
    count = math.prod(len(values) for values in axes.values())
    if count > _MOST:
        findings.append(
            Diagnostic(
                code="matrix_too_large",
                summary=f"the matrix has {count:,} combinations; the limit is {_MOST:,}",
                place=place_of(node),
                hint="split it into several runs",
            )
        )
    return (None if findings else axes), tuple(findings)


def cells(axes: Axes) -> Iterator[Cell]:
    """Every combination, the last axis changing fastest."""
    names = list(axes)
    choices = [[(f"{name}={shown(value)}", value) for value in axes[name]] for name in names]
    for combination in itertools.product(*choices):
        key = ",".join(text for text, _ in combination)
        yield Cell(key, {name: value for name, (_, value) in zip(names, combination, strict=True)})


def _compared(node: Scalar) -> object:
    """What equal values have in common: numbers are equal by their value, `1` and `1.0`."""
    value = resolve(node.text) if node.plain else node.text
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return ("number", value) if number else shown(node)


def shown(node: Scalar) -> str:
    """A value as addresses show it: canonical JSON, text bare where that is not ambiguous."""
    value: Value = resolve(node.text) if node.plain else node.text
    if isinstance(value, str) and _SIMPLE.fullmatch(value) and isinstance(resolve(value), str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return node.text  # refused later
    return canonical(value)
