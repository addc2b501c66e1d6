"""YAML text to a document, within limits."""

import re

import yaml

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.composer import Composer, Stop
from sgpu_decl.text.file_limits import RUN_FILE, FileLimits, too_deep, too_large
from sgpu_decl.text.yaml_nodes import Document, Mapping, Node, Sequence, place_of

# Not YAML characters, but for tab and line breaks; libyaml would refuse them without a place.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def load(
    text: str | bytes, file: str, *, limits: FileLimits = RUN_FILE
) -> tuple[Document | None, tuple[Diagnostic, ...]]:
    """Read one YAML file whose root is a mapping.

    Args:
        text: the content; a byte order mark and any line breaks are fine.
        file: how the user named it, for places.

    Returns:
        The document, or `None` where there is none to speak of, and what is wrong. A document may
        come with errors (duplicate keys): the first of the equal keys counts then.
    """
    size = (
        len(text)
        if isinstance(text, bytes) or text.isascii()
        else len(text.encode("utf-8", "replace"))
    )
    if size > limits.size:
        return None, (too_large(file, limits),)
    source, refused = decoded(text, file)
    if source is None:
        return None, refused
    reader = Composer(file=file, limits=limits)
    root: Node | None = None
    try:
        root = reader.compose(source)
    except Stop:
        pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        if mark is not None and _brackets_open(source, mark.index) > limits.depth:
            place = Place(file, mark.line + 1, mark.column + 1)
            reader.findings.append(too_deep(limits, place))
        else:
            reader.findings.append(_syntax(error, file))
    if root is None or reader.stopped:
        return None, tuple(reader.findings)
    if not isinstance(root, Mapping):
        what = "a list" if isinstance(root, Sequence) else "a single value"
        reader.note(
            "not_a_mapping",
            f"the file holds {what}, not a mapping",
            place_of(root),
            "start with `name: my-run`, or `sgpu init`",
        )
        return None, tuple(reader.findings)
    document = Document(file=file, source=source, root=root, nodes=reader.count, size=size)
    return document, tuple(reader.findings)


def decoded(text: str | bytes, file: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """The text of a file without a byte order mark, or why it is no text of YAML."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode("utf-8", "replace")
            return None, (
                Diagnostic(
                    code="not_utf8",
                    summary="the file is not UTF-8 text",
                    place=_place_at(good, len(good), file),
                    hint="save it as UTF-8",
                ),
            )
    text = text.removeprefix("\ufeff")
    if match := _FORBIDDEN.search(text):
        name = "a NUL character" if match[0] == "\0" else f"the character U+{ord(match[0]):04X}"
        return None, (
            Diagnostic(
                code="forbidden_character",
                summary=f"the file holds {name}, which YAML does not allow",
                place=_place_at(text, match.start(), file),
                hint="remove it; is this a text file?"
                if match[0] == "\0"
                else 'remove it, or write it as an escape in double quotes ("\\x1b")',
            ),
        )
    return text, ()


def _place_at(text: str, offset: int, file: str) -> Place:
    breaks = list(LINE_BREAK.finditer(text, 0, offset))
    start = breaks[-1].end() if breaks else 0
    return Place(file, len(breaks) + 1, offset - start + 1)


def _brackets_open(source: str, end: int) -> int:
    """How many brackets of one line are open at an offset. libyaml has a limit of its own for them
    since 0.2.6, which counts before the first of them is reported."""
    line = source[:end].rpartition("\n")[2]
    return sum(line.count(opening) - line.count(closing) for opening, closing in ("[]", "{}"))


def _syntax(error: yaml.YAMLError, file: str) -> Diagnostic:
    problem = getattr(error, "problem", None) or "the text cannot be read"
    context = getattr(error, "context", None)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    start = getattr(error, "context_mark", None)
    related: tuple[Related, ...] = ()
    if (
        start is not None
        and mark is not None
        and (start.line, start.column) != (mark.line, mark.column)
    ):
        place = Place(file, start.line + 1, start.column + 1)
        related = (
            Related(place=place, note=mask(str(context or "what it belongs to starts here"))),
        )
    hint = "check the indentation, quotes and brackets here and on the line before"
    if "cannot start any token" in problem:
        hint = "indent with spaces, not tabs, and put text that starts with @, ` or % in quotes"
    elif "mapping values are not allowed" in problem:
        hint = "put text that contains `: ` in quotes"
    return Diagnostic(
        code="yaml_syntax",
        summary=f"this is not YAML: {mask(str(problem))}",
        place=Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1),
        hint=hint,
        related=related,
    )
