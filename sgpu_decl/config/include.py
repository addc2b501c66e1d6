"""`include`: the patterns of a root file, and the files that they brought."""

import re
from collections.abc import Callable, Iterator, Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, is_nothing, place_of
from sgpu_decl.text.yaml_nodes import Sequence as Items

_MAGIC = re.compile(r"[*?\[]")
_NEVER = (".git", ".sgpu")
_EXAMPLE = "such as `runs/*.yml`"


@dataclass(frozen=True, slots=True)
class IncludePattern:
    """`text` is a relative path with `/`, in which `*`, `?`, `[…]` and `**` match names."""

    text: str
    place: Place

    @property
    def literal(self) -> bool:
        """Whether it names one file."""
        return _MAGIC.search(self.text) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludedFile:
    """One file that a pattern matched.

    Attributes:
        path: from the folder of the root file, with `/`.
        file: as places name it: from the folder that the command was called in.
    """

    path: str
    file: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Included:
    files: tuple[IncludedFile, ...] = ()
    findings: tuple[Diagnostic, ...] = ()


ReadIncluded = Callable[[Sequence[IncludePattern]], Included]
"""Reads the files that the patterns match, in order."""


def include_patterns(root: Mapping) -> tuple[tuple[IncludePattern, ...], tuple[Diagnostic, ...]]:
    """The patterns of a root file, and what is wrong with them by their text alone."""
    block = root.entries.get("include")
    if block is None or is_nothing(block):
        return (), ()
    if not isinstance(block, Items):
        return (), (_no_list(place_of(block)),)
    patterns: list[IncludePattern] = []
    findings: list[Diagnostic] = []
    for item in block.items:
        if not isinstance(item, Scalar) or is_nothing(item):
            findings.append(_no_list(place_of(item)))
            continue
        refusals = tuple(_refused(item))
        findings += refusals[:1]
        if not refusals:
            parts = [part for part in item.text.split("/") if part not in ("", ".")]
            patterns.append(IncludePattern("/".join(parts), place_of(item)))
    return tuple(patterns), tuple(findings)


def _refused(item: Scalar) -> Iterator[Diagnostic]:
    text = item.text
    parts = text.split("/")
    if "${" in text:
        yield _invalid(
            item,
            f"`{text}` holds a reference, and files are read first",
            f"write it out, {_EXAMPLE}",
        )
    if text.startswith(("/", "~")) or ".." in parts:
        yield _invalid(
            item,
            f"`{text}` leads out of the project",
            f"name files below the folder of this file by a relative path, {_EXAMPLE}",
        )
    for name in _NEVER:
        if name in parts:
            yield _invalid(
                item, f"`{text}` leads into `{name}`, which holds no files of a project",
                f"name files of yours, {_EXAMPLE}",
            )  # fmt: skip
    if not text.strip("/.") or "\0" in text or text.endswith("/"):
        yield _invalid(item, f"`{text}` names no file", f"write a path or a pattern, {_EXAMPLE}")


def _no_list(place: Place) -> Diagnostic:
    return Diagnostic(
        code="wrong_type",
        summary="`include` must be a list of paths and patterns",
        place=place,
        hint="write `include: [runs/*.yml]`",
    )


def _invalid(item: Scalar, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code="include_invalid", summary=summary, place=place_of(item), hint=hint)
