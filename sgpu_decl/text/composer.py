"""Events to nodes: the part of reading that counts, checks keys and resolves aliases.

The parser is driven event by event and left as soon as a limit is passed: nothing here recurses,
and nothing is composed first (libyaml's composer crashes the process on deep input).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial

import yaml
from yaml import events

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.file_limits import FileLimits, too_deep, too_many
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, place_of, resolve


def events_of(source: str) -> Iterator[events.Event]:
    """The events of libyaml where PyYAML was built with it, else of PyYAML's own parser."""
    if yaml.__with_libyaml__:
        from yaml._yaml import CParser

        return iter(CParser(source).get_event, None)
    return iter(yaml.SafeLoader(source).get_event, None)


_UNFIT = re.compile("[\x00\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}


def one_line(key: str) -> str:
    """A key as messages show it."""
    return key[:80].replace("\n", "\\n")


class Stop(Exception):
    """Reading cannot go on; the diagnostic is already noted."""


_scalar_of: Callable[[tuple[object, ...]], Scalar] = partial(tuple.__new__, Scalar)
"""Makes a scalar of all its fields in half the time of its constructor."""


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
class Composer:
    file: str
    limits: FileLimits
    findings: list[Diagnostic] = field(default_factory=list)
    anchors: dict[str, _Anchored | None] = field(default_factory=dict)  # None: still open
    plain_keys: set[str] = field(default_factory=set)  # those that were found to be text
    stack: list[_Frame] = field(default_factory=list)
    count: int = 0
    root: Node | None = None
    stopped: bool = False

    def note(self, code: str, summary: str, place: Place, hint: str, *related: Related) -> None:
        self.findings.append(
            Diagnostic(code=code, summary=mask(summary), place=place, hint=hint, related=related)
        )

    def stop(self, code: str, summary: str, event: events.Event, hint: str) -> Stop:
        self.note(code, summary, self.place(event), hint)
        self.stopped = True
        return Stop()

    def place(self, event: events.Event) -> Place:
        return Place(self.file, *_at(event))

    def compose(self, source: str) -> Node | None:
        documents = 0
        empty = Diagnostic(
            code="empty_file",
            summary="the file is empty",
            place=Place(self.file, 1, 1),
            hint="write a run in it; if it was to be a saved plan, save that again",
        )
        for event in events_of(source):
            if isinstance(event, events.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, events.CollectionStartEvent):
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
            self.findings.append(empty)
            return None
        return root

    def _scalar(self, event: events.ScalarEvent) -> None:
        """Files are mostly scalars: for an ordinary one, hardly anything else is called."""
        mark = event.start_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
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
        self.count += 1
        if self.count > self.limits.nodes:
            self._counted(0, event)
        if event.anchor is None and text in self.plain_keys:
            frame = self.stack[-1]
            if frame.key is None and frame.items is None and text not in frame.keys:
                frame.key = text
                frame.skip = False
                frame.keys[text] = Place(self.file, line, column)
                return
        node = _scalar_of((text, plain, line, column, self.file, None, ()))
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(node, 1, 0)
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

    def _open(self, event: events.CollectionStartEvent) -> None:
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

    def _too_deep(self, event: events.Event) -> Stop:
        self.findings.append(too_deep(self.limits, self.place(event)))
        self.stopped = True
        return Stop()

    def _counted(self, nodes: int, event: events.Event) -> None:
        self.count += nodes
        if self.count > self.limits.nodes:
            self.findings.append(too_many(self.file, self.limits, self.place(event)))
            self.stopped = True
            raise Stop

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
        new = node.plain and key not in self.plain_keys
        if new and not isinstance(resolve(key), str):
            self.note(
                "key_not_text",
                f"the key `{key[:40]}` is not text" if key else "a value has no key",
                place_of(node),
                f'put it in quotes: "{key[:40]}"' if key else "write `key: value`",
            )
            frame.skip = True
        elif new and key == "<<":
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
                f"the key `{one_line(key)}` is written twice",
                place_of(node),
                "keep one of them",
                related,
            )
            frame.skip = True
        else:
            frame.keys[key] = Place(self.file, node.line, node.column)
            if new:
                self.plain_keys.add(key)
