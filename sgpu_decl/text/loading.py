"""YAML text to a document, within limits.

The parser is driven event by event and left as soon as a limit is passed: nothing here recurses,
and nothing is composed first (libyaml's composer crashes the process on deep input).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import yaml
from yaml import events

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.masking import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.nodes import Document, Mapping, Node, Scalar, Sequence, place_of
from sgpu_decl.text.resolving import resolve

__all__ = [
    "PROJECT_FILE",
    "RUN_FILE",
    "Limits",
    "is_project",
    "limits_for",
    "load",
    "too_large",
    "too_many",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`size` in bytes; `nodes` with aliases written out; `depth` in nested collections."""

    size: int
    nodes: int
    depth: int = 100


RUN_FILE = Limits(size=1 << 20, nodes=100_000)
PROJECT_FILE = Limits(size=10 << 20, nodes=2_000_000)

_PROJECT_NAMES = ("sgpu.yml", "sgpu.yaml")
_PROJECT_KEYS = ("project", "runs")
_PROJECT_KEY = re.compile(r"""^[\s{]*["']?(?:project|runs)["']?[ \t]*:""", re.MULTILINE)
# Not YAML characters, but for tab and line breaks; libyaml would refuse them without a place.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}


class _Stop(Exception):
    """Reading cannot go on; the diagnostic is already noted."""


def is_project(root: Mapping, file: str) -> bool:
    """Whether a file describes a project rather than one run."""
    return any(key in root.entries for key in _PROJECT_KEYS) or _named_project(file)


def limits_for(text: str | bytes, file: str) -> Limits:
    """The limits that a file is read under. A guess in favour of the project: whoever reads a run
    file checks the smaller limits again once it is known to be one."""
    if _named_project(file):
        return PROJECT_FILE
    if len(text) > PROJECT_FILE.size:
        return RUN_FILE
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return PROJECT_FILE if _PROJECT_KEY.search(shown) else RUN_FILE


def load(
    text: str | bytes, file: str, *, limits: Limits = RUN_FILE
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
        return None, (too_large(file, size, limits),)
    source, refused = _decode(text, file)
    if source is None:
        return None, refused
    reader = _Reader(file=file, limits=limits)
    root: Node | None = None
    try:
        root = reader.read(source)
    except _Stop:
        pass
    except yaml.YAMLError as error:
        reader.found.append(_syntax(error, file))
    if root is None or reader.stopped:
        return None, tuple(reader.found)
    if not isinstance(root, Mapping):
        what = "a list" if isinstance(root, Sequence) else "a single value"
        reader.note(
            "not_a_mapping",
            f"the file holds {what}, not a mapping",
            place_of(root),
            "start with `name: my-run`, or `sgpu init`",
        )
        return None, tuple(reader.found)
    document = Document(file=file, source=source, root=root, nodes=reader.count, size=size)
    return document, tuple(reader.found)


def too_large(file: str, size: int, limits: Limits) -> Diagnostic:
    return Diagnostic(
        code="file_too_large",
        summary=f"the file has {size:,} bytes; the limit is {limits.size:,}",
        place=Place(file, 1, 1),
        hint="is this the right file? a run or project file is text written by hand",
    )


def too_many(file: str, limits: Limits, place: Place | None = None) -> Diagnostic:
    return Diagnostic(
        code="too_many_values",
        summary=f"the file holds more than {limits.nodes:,} values once aliases are written out",
        place=place or Place(file, 1, 1),
        hint="write fewer aliases (`*name`), or split the file",
    )


def _named_project(file: str) -> bool:
    return file.replace("\\", "/").rpartition("/")[2] in _PROJECT_NAMES


def _decode(text: str | bytes, file: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
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
                hint='remove it, or write it as an escape in double quotes ("\\x1b")',
            ),
        )
    return text, ()


def _place_at(text: str, offset: int, file: str) -> Place:
    breaks = list(_BREAK.finditer(text, 0, offset))
    start = breaks[-1].end() if breaks else 0
    return Place(file, len(breaks) + 1, offset - start + 1)


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


def _events(source: str) -> Iterator[events.Event]:
    """The events of libyaml where PyYAML was built with it, else of PyYAML's own parser."""
    if yaml.__with_libyaml__:
        from yaml._yaml import CParser

        following: Callable[[], events.Event | None] = CParser(source).get_event
    else:
        following = yaml.SafeLoader(source).get_event
    while True:
        event = following()
        if event is None:
            return
        yield event


def _at(event: events.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


@dataclass(slots=True)
class _Frame:
    """A collection that is being read. `key` is the key whose value comes next."""

    line: int
    column: int
    anchor: str | None
    before: int  # nodes counted before it
    items: list[Node] | None = None
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    key: str | None = None
    skip: bool = False  # the value of a refused key is read and dropped
    height: int = 1


@dataclass(slots=True)
class _Anchored:
    node: Node
    nodes: int
    height: int


@dataclass(slots=True)
class _Reader:
    file: str
    limits: Limits
    found: list[Diagnostic] = field(default_factory=list)
    anchors: dict[str, _Anchored | None] = field(default_factory=dict)  # None: still open
    stack: list[_Frame] = field(default_factory=list)
    count: int = 0
    root: Node | None = None
    stopped: bool = False

    def note(self, code: str, summary: str, place: Place, hint: str, *related: Related) -> None:
        self.found.append(
            Diagnostic(code=code, summary=mask(summary), place=place, hint=hint, related=related)
        )

    def stop(self, code: str, summary: str, event: events.Event, hint: str) -> _Stop:
        self.note(code, summary, self.place(event), hint)
        self.stopped = True
        return _Stop()

    def place(self, event: events.Event) -> Place:
        return Place(self.file, *_at(event))

    def read(self, source: str) -> Node | None:
        documents = 0
        empty = Diagnostic(
            code="empty_file",
            summary="the file is empty",
            place=Place(self.file, 1, 1),
            hint="`sgpu init` writes one to start from",
        )
        for event in _events(source):
            if isinstance(event, events.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, events.MappingStartEvent | events.SequenceStartEvent):
                self._open(event)
            elif isinstance(event, events.CollectionEndEvent):
                self._close()
            elif isinstance(event, events.AliasEvent):
                self._alias(event)
            elif isinstance(event, events.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.stop(
                        "several_documents",
                        "the file holds several documents",
                        event,
                        "keep one; a project file (`sgpu.yml`) holds several runs under `runs`",
                    )
        root = self.root
        if root is None or (isinstance(root, Scalar) and root.plain and root.text == ""):
            self.found.append(empty)
            return None
        return root

    def _scalar(self, event: events.ScalarEvent) -> None:
        line, column = _at(event)
        text = event.value
        plain = event.implicit[0]
        if event.tag is not None:
            plain = self._tagged(event.tag, text, event)
        if ("\0" in text or not text.isascii()) and _UNFIT.search(text):
            self.note(
                "forbidden_character",
                "the text holds a NUL or half a character",
                Place(self.file, line, column),
                "remove the escape `\\0` or `\\ud8…`",
            )
        node = Scalar(text, plain, line, column, self.file)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(node, 1, 0)
        self._counted(1, event)
        self._add(node, 0, event)

    def _tagged(self, tag: str, text: str, event: events.Event) -> bool:
        """Whether a tagged scalar is plain; notes a tag that says something else than its text."""
        name = tag.removeprefix(_TAG)
        if tag == "!" or tag == _TAG + "str":
            return False
        wanted = _SCALAR_TAGS.get(name) if tag != name else None
        if wanted is not None:
            if type(resolve(text)) is wanted:
                return True
            self.note(
                "unknown_tag",
                f"`{text[:40]}` is not of the type `!!{name}`",
                self.place(event),
                "remove the tag",
            )
            return False
        self._unknown_tag(tag, event)
        return False

    def _unknown_tag(self, tag: str, event: events.Event) -> None:
        shown = tag.replace(_TAG, "!!")[:60]
        self.note(
            "unknown_tag",
            f"unknown tag `{shown}`",
            self.place(event),
            "remove the tag; text that starts with `!` needs quotes",
        )

    def _open(self, event: events.MappingStartEvent | events.SequenceStartEvent) -> None:
        mapping = isinstance(event, events.MappingStartEvent)
        tag = event.tag
        if tag is not None and tag not in ("!", _TAG + ("map" if mapping else "seq")):
            self._unknown_tag(tag, event)
        stack = self.stack
        if stack and stack[-1].items is None and stack[-1].key is None:
            what = "a mapping" if mapping else "a list"
            raise self.stop(
                "key_not_text",
                f"a key is {what}; keys are text",
                event,
                "write `key: value`; text with braces or brackets needs quotes",
            )
        self._counted(1, event)
        if len(stack) >= self.limits.depth:
            raise self._too_deep(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        items: list[Node] | None = None if mapping else []
        stack.append(_Frame(*_at(event), event.anchor, self.count - 1, items))

    def _close(self) -> None:
        frame = self.stack.pop()
        node: Node
        if frame.items is None:
            node = Mapping(frame.entries, frame.keys, frame.line, frame.column, self.file)
        else:
            node = Sequence(tuple(frame.items), frame.line, frame.column, self.file)
        if frame.anchor is not None:
            self.anchors[frame.anchor] = _Anchored(node, self.count - frame.before, frame.height)
        self._add(node, frame.height, None)

    def _alias(self, event: events.AliasEvent) -> None:
        name = event.anchor
        if name not in self.anchors:
            raise self.stop(
                "unknown_anchor",
                f"no anchor `&{name}` comes before `*{name}`",
                event,
                "text that starts with `*` needs quotes",
            )
        target = self.anchors[name]
        if target is None:
            raise self.stop(
                "recursive_anchor",
                f"`*{name}` lies inside `&{name}`: it has no end",
                event,
                "remove the alias",
            )
        self._counted(target.nodes, event)
        if len(self.stack) + target.height > self.limits.depth:
            raise self._too_deep(event)
        node = target.node
        if isinstance(node, Scalar):  # where it is used says more than where it was named
            place = self.place(event)
            node = node._replace(line=place.line, column=place.column)
        self._add(node, target.height, event)

    def _too_deep(self, event: events.Event) -> _Stop:
        return self.stop(
            "too_deep",
            f"the values are nested more than {self.limits.depth} deep",
            event,
            "is a bracket missing?",
        )

    def _counted(self, nodes: int, event: events.Event) -> None:
        self.count += nodes
        if self.count > self.limits.nodes:
            self.found.append(too_many(self.file, self.limits, self.place(event)))
            self.stopped = True
            raise _Stop

    def _add(self, node: Node, height: int, event: events.Event | None) -> None:
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        if height >= frame.height:
            frame.height = height + 1
        if frame.items is not None:
            frame.items.append(node)
        elif frame.key is None:
            if not isinstance(node, Scalar):
                assert event is not None  # noqa: S101  # an alias: collections are refused when they open
                raise self.stop(
                    "key_not_text",
                    "a key is an alias of a collection; keys are text",
                    event,
                    "write the key out",
                )
            self._key(frame, node)
        else:
            if not frame.skip:
                frame.entries[frame.key] = node
            frame.key = None

    def _key(self, frame: _Frame, node: Scalar) -> None:
        key = frame.key = node.text
        frame.skip = False
        if node.plain and not isinstance(resolve(key), str):
            shown = key or "(nothing)"
            self.note(
                "key_not_text",
                f"the key `{shown[:40]}` is not text",
                place_of(node),
                f'put it in quotes: "{shown[:40]}"',
            )
            frame.skip = True
        elif key == "<<" and node.plain:
            self.note(
                "merge_key",
                "merge keys (`<<`) are not part of YAML 1.2",
                place_of(node),
                "use an alias for the whole value, or a target",
            )
            frame.skip = True
        elif key in frame.keys:
            related = Related(place=frame.keys[key], note="first written here")
            self.note(
                "duplicate_key",
                f"the key `{key[:80]}` is written twice",
                place_of(node),
                "keep one of them",
                related,
            )
            frame.skip = True
        else:
            frame.keys[key] = Place(self.file, node.line, node.column)
