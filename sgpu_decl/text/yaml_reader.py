"""YAML text to a document, within limits."""

import codecs
import re
import unicodedata
from functools import lru_cache

import yaml

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.composer import Composer, Stop
from sgpu_decl.text.file_limits import RUN_FILE, FileLimits, limits_for, too_deep, too_large
from sgpu_decl.text.yaml_nodes import Document, Mapping, Node, Sequence, place_of

# Not YAML characters, but for tab and line breaks; libyaml would refuse them without a place.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_ODD_SPACE = re.compile("[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000\ufeff]")
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@lru_cache(maxsize=64)
def load_file(content: str | bytes, file: str) -> tuple[Document | None, tuple[Diagnostic, ...]]:
    """Read a run or project file, or one that is included; see `load`. A command asks it for
    targets, for the state and for runs: it is parsed once."""
    return load(content, file, limits=limits_for(content, file))


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
        column = None if mark is None else _bracket_beyond(source, mark.index, limits.depth)
        if mark is not None and column is not None:
            reader.findings.append(too_deep(limits, Place(file, mark.line + 1, column)))
        else:
            reader.findings.append(_syntax(error, source, file))
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
            if error.object.startswith(_OTHER_MARKS):
                return None, (_other_encoding(file),)
            good = error.object[: error.start].decode("utf-8", "replace")
            return None, (
                Diagnostic(
                    code="not_utf8",
                    summary="the file is not UTF-8 text",
                    place=_place_at(good, len(good), file),
                    hint="save it as UTF-8",
                ),
            )
        if "\0" in text[:4]:  # without a byte order mark
            return None, (_other_encoding(file),)
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


def _other_encoding(file: str) -> Diagnostic:
    return Diagnostic(
        code="not_utf8",
        summary="the file is not UTF-8 text: it looks like UTF-16 or UTF-32",
        place=Place(file, 1, 1),
        hint="save it as UTF-8; in PowerShell, `Set-Content -Encoding utf8`",
    )


def _place_at(text: str, offset: int, file: str) -> Place:
    breaks = list(LINE_BREAK.finditer(text, 0, offset))
    start = breaks[-1].end() if breaks else 0
    return Place(file, len(breaks) + 1, offset - start + 1)


def _bracket_beyond(source: str, end: int, most: int) -> int | None:
    """The column of the first bracket that lies in more than `most` others, if as many of the line
    are open at an offset. libyaml has a limit of its own for them since 0.2.6, which counts before
    the first of them is reported."""
    depth, beyond = 0, None
    for column, character in enumerate(source[:end].rpartition("\n")[2], 1):
        if character in "[{":
            depth += 1
            if depth > most and beyond is None:
                beyond = column
        elif character in "]}":
            depth -= 1
            if depth <= most:
                beyond = None
    return beyond


def _odd_space(source: str, *marks: "yaml.Mark | None") -> str | None:
    """What to do about a space that YAML takes for a letter, in one of these lines."""
    lines = LINE_BREAK.split(source)
    for number in {mark.line for mark in marks if mark is not None and mark.line < len(lines)}:
        if found := _ODD_SPACE.search(lines[number]):
            what = f"{unicodedata.name(found[0]).lower()} (U+{ord(found[0]):04X})"
            where = f"line {number + 1}, column {found.start() + 1}"
            return f"write an ordinary space in {where}: there is a {what}"
    return None


def _syntax(error: yaml.YAMLError, source: str, file: str) -> Diagnostic:
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
    elif "Unicode character escape" in problem:
        hint = "write the character itself: YAML has no escapes for halves of a character"
    return Diagnostic(
        code="yaml_syntax",
        summary=f"this is not YAML: {mask(str(problem))}",
        place=Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1),
        hint=_odd_space(source, start, mark) or hint,
        related=related,
    )
