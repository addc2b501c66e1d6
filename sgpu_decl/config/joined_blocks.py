"""The blocks of several files joined: nothing is laid over anything, so what two files say twice is
an error, and the order of the files does not matter."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from sgpu_decl.config.target_chain import DEFAULT, EXTENDS
from sgpu_decl.config.target_rules import OF_RULES
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text import yaml_nodes

_NAMED_BLOCKS = {
    "variables": "variable",
    "environments": "environment",
    "runs": "run",
    "jobs": "job",
}
"""Blocks of things that have names, each with the word for one thing. Each thing stands in one
file."""
_SHARED_BLOCKS = ("defaults", "functions", "targets")
"""Blocks whose fields may stand in several files, each in one."""
_FRAGMENT = frozenset({*_NAMED_BLOCKS, *_SHARED_BLOCKS})
_TARGET_OF_ROOT = frozenset({"mode", "presets", "state", DEFAULT, EXTENDS, *OF_RULES})


def keys_of_root(root: yaml_nodes.Mapping) -> Iterator[Diagnostic]:
    """The keys of a fragment that only the root file has. Unknown keys are reported with all
    others, by validation."""
    for key in root.entries.keys() & _keys_of_root():
        yield _of_root(f"`{key}`", root.keys[key])
    targets = root.entries.get("targets")
    for name, overrides in (
        targets.entries.items() if isinstance(targets, yaml_nodes.Mapping) else ()
    ):
        if isinstance(overrides, yaml_nodes.Mapping):
            for key in overrides.entries.keys() & _TARGET_OF_ROOT:
                yield _of_root(f"`targets.{name}.{key}`", overrides.keys[key])


@cache
def _keys_of_root() -> frozenset[str]:
    from sgpu_decl.config.plain_values import project_shape

    return frozenset(project_shape().keys) - _FRAGMENT


def _of_root(what: str, place: Place) -> Diagnostic:
    return Diagnostic(
        code="root_only",
        summary=f"{what} belongs to the root file of the project, and this file is included",
        place=place,
        hint="move it to the file whose `include` names this one",
    )


class JoinedBlocks:
    """The root mapping while files are added to it."""

    def __init__(self, root: yaml_nodes.Mapping) -> None:
        self._root = root
        self._entries = dict(root.entries)
        self._keys = dict(root.keys)
        self._blocks: dict[str, tuple[dict[str, yaml_nodes.Node], dict[str, Place]]] = {}
        self.findings: list[Diagnostic] = []

    def add(self, fragment: yaml_nodes.Mapping) -> None:
        for key, node in fragment.entries.items():
            place = fragment.keys[key]
            if key in _keys_of_root():
                continue
            if key not in self._entries or yaml_nodes.is_nothing(self._entries[key]):
                self._entries[key], self._keys[key] = node, place
            elif yaml_nodes.is_nothing(node):
                continue
            elif key in _NAMED_BLOCKS:
                self._named(key, node, place)
            else:
                old = self._entries[key]
                self._entries[key] = self._shared(old, node, key, self._keys[key], place)

    def root(self) -> yaml_nodes.Mapping:
        for key, (entries, keys) in self._blocks.items():
            node = self._entries[key]
            assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101  `_named` looked
            self._entries[key] = replace(node, entries=entries, keys=keys)
        return replace(self._root, entries=self._entries, keys=self._keys)

    def _named(self, block: str, node: yaml_nodes.Node, place: Place) -> None:
        old = self._entries[block]
        if not isinstance(old, yaml_nodes.Mapping) or not isinstance(node, yaml_nodes.Mapping):
            wrong = node if isinstance(old, yaml_nodes.Mapping) else old
            at = place if wrong is node else self._keys[block]
            self.findings.append(_no_mapping(block, at))
            return
        entries, keys = self._blocks.setdefault(block, (dict(old.entries), dict(old.keys)))
        for name, value in node.entries.items():
            if name in entries:
                what = f"the {_NAMED_BLOCKS[block]} `{name}`"
                self.findings.append(_twice(what, "declared", node.keys[name], keys[name]))
            else:
                entries[name], keys[name] = value, node.keys[name]

    def _shared(
        self,
        old: yaml_nodes.Node,
        new: yaml_nodes.Node,
        path: str,
        old_place: Place,
        place: Place,
    ) -> yaml_nodes.Node:
        """Two mappings as one. A field that both set is an error, and keeps the first value."""
        # Down to here are blocks and targets: an empty one changes nothing.
        if yaml_nodes.is_nothing(new) and path.count(".") < 2:
            return old
        if yaml_nodes.is_nothing(old) and path.count(".") < 2:
            return new
        if not isinstance(old, yaml_nodes.Mapping) or not isinstance(new, yaml_nodes.Mapping):
            self.findings.append(_twice(f"`{path}`", "set", place, old_place))
            return old
        entries, keys = dict(old.entries), dict(old.keys)
        for key, value in new.entries.items():
            if key in entries:
                entries[key] = self._shared(
                    entries[key], value, f"{path}.{key}", keys[key], new.keys[key]
                )
            else:
                entries[key], keys[key] = value, new.keys[key]
        return replace(old, entries=entries, keys=keys)


def _twice(what: str, done: str, place: Place, first: Place) -> Diagnostic:
    return Diagnostic(
        code="declared_twice",
        summary=f"{what} is {done} in two files",
        place=place,
        hint="keep one of them",
        related=(Related(place=first, note=f"first {done} here"),),
    )


def _no_mapping(block: str, place: Place) -> Diagnostic:
    return Diagnostic(
        code="wrong_type",
        summary=f"`{block}` must be a mapping",
        place=place,
        hint=f"write `{block}: {{NAME: …}}`",
    )
