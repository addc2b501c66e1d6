"""A call of a decorated function as a run, as if somebody had written a run file for it.

What is said last wins:

    fallback       what holds where nobody speaks
    functions      the block of the project
    the decorator  and what the call itself overrides
    targets        `targets.<t>.functions` of the chosen target
    --set          of the command line, where there is one

Ranks on another machine get the packages of the caller's interpreter, as a snapshot, where none of
these says what they have installed.
"""

import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Names
from dataclasses import replace
from functools import cache

from sgpu_decl.config.backend import DEFAULT
from sgpu_decl.config.cross_field import ORIGINS
from sgpu_decl.config.file_reader import digest_of, loaded_run, overlaid, told
from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.config.project_reader import ReadProject, read_project
from sgpu_decl.config.run_reader import beyond, read_run
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.diagnostics.masks import find_token, mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.core_schema import is_null, resolve
from sgpu_decl.text.file_limits import PROJECT_FILE
from sgpu_decl.text.interpolation import interpolate
from sgpu_decl.text.overrides import in_full, merge, set_value
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_reader import load

__all__ = ["CAPTURED", "declare_call", "respelt"]

CAPTURED = "packages_captured"
"""The code of the finding that ranks get the packages of the caller's interpreter."""

# Literals in messages: a field (`gpus`), or a field and its value (`gpus: 8`).
_FIELD = re.compile(r"`([a-z_]+(?:\.[A-Za-z0-9_]+)*)(?:: ([^`]*))?`")
_INSTALLED = frozenset({"use", *ORIGINS})
_BARE = re.compile(r"-?[0-9.]+|true|false|null")


def declare_call(
    given: Names[str, Json],
    *,
    name: str,
    place: Place,
    fallback: Names[str, Json],
    project: tuple[bytes, str] | None,
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Names[str, str],
    git: Callable[[], Names[str, str]],
    spelled: Names[str, str] | None = None,
    captured: bool = False,
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """Make a run of what a decorator and a project say.

    Args:
        given: what the decorator and the call say, in terms of a run file: literal values, without
            references. Text of `args` that looks like a token is masked: the arguments themselves
            travel by another way.
        name: the name of the run.
        place: where the decorator stands.
        fallback: what holds where neither decorator nor project speaks.
        project: text and shown name of the project file. All that is wrong with it is told, as by
            a plan.
        target: the target whose overrides apply; only a project declares targets.
        variables: `--var` options, in order.
        sets: `--set` options, in order; their paths are those of a project file.
        environ: what `${env.NAME}` of the project refers to.
        git: asked at most once for `commit`, `branch` and `dirty`.
        spelled: the names that the decorator's parameters have, by the field that they give
            (`{"type": "gpu_type"}`); messages about them use these names.
        captured: whether a snapshot is taken of the caller's interpreter where nothing is said of
            packages and ranks run elsewhere.

    Returns:
        What `file_reader.read` gives for a run file, `None` if anything is wrong, and every finding
        in order. `source` is the text of the project file.
    """
    written = yaml_nodes.Mapping({}, {}, place.line, place.column, place.file)
    document = yaml_nodes.Document(file=place.file, source="", root=written, nodes=0, size=0)
    found: tuple[Diagnostic, ...] = ()
    if project is not None:
        text, file = project
        read, found = load(text, file, limits=PROJECT_FILE)
        if read is None:
            return None, told(found)
        document = read
    root, around, wrong = overlaid(
        document, "project", target, variables, sets, environ, cache(git)
    )
    about, more = read_project(root, around)
    found = (*found, *wrong, *more)
    below, above = _layers(document.root, target, sets)
    node = _node(dict(fallback), place)
    for layer in (_resolved(below, about), _given(given, name, place), _resolved(above, about)):
        node = _laid(node, layer)
    assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101 - layers that are none were left out
    if captured and _elsewhere(node) and not _packages_said(node):
        node = merge(_node({"env": {"snapshot": True}}, place), node, run_shape())
        assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101 - of two mappings
        found = (*found, _told_of_capture(place))
    declared, wrong = read_run(node, None, place, replace(about.around, references=False))
    wrong = tuple(respelt(one, place, spelled or {}) for one in beyond(wrong, found))
    if has_errors(found):  # what the call lacks may stand in what cannot be read
        wrong = tuple(one for one in wrong if one.code != "missing_key")
    ordered = told((*found, *wrong))
    if has_errors(ordered):
        return None, ordered
    runs = tuple(loaded_run(one) for one in declared)
    loaded = Loaded(
        kind="run", file=place.file, project_name=about.name, target=target, runs=runs,
        config_digest=digest_of(runs), source=document.source,
        unsupported=tuple(one for one in about.unsupported if one[0] == "include"),
    )  # fmt: skip
    return loaded, ordered


def _layers(
    root: yaml_nodes.Mapping, target: str | None, sets: Sequence[tuple[str, str]]
) -> tuple[yaml_nodes.Node | None, yaml_nodes.Node | None]:
    """What `functions` says below the decorator, and what a target and options say above it."""
    targets = root.entries.get("targets")
    over = targets.entries.get(target or "") if isinstance(targets, yaml_nodes.Mapping) else None
    above = over.entries.get("functions") if isinstance(over, yaml_nodes.Mapping) else None
    below = root.entries.get("functions")
    holder = replace(root, entries={} if above is None else {"functions": above})
    for path, value in sets:
        if path.partition(".")[0] == "functions":
            holder, _ = set_value(holder, path, value, project_shape())  # refusals are known
    above = holder.entries.get("functions")
    return (None if above is not None and _nothing(above) else below), above


def _resolved(layer: yaml_nodes.Node | None, project: ReadProject) -> yaml_nodes.Mapping | None:
    """A layer with its references filled in. What cannot be filled in is known from the project."""
    if not isinstance(layer, yaml_nodes.Mapping):
        return None
    changed = interpolate(layer, project.around.scope({}))
    return changed if isinstance(changed, yaml_nodes.Mapping) else None


def _given(given: Names[str, Json], name: str, place: Place) -> yaml_nodes.Mapping:
    node = _node({**given, "name": name}, place)
    assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101 - of a mapping
    args = node.entries.get("args")
    if args is None:
        return node
    return replace(node, entries={**node.entries, "args": _masked(args)})


def _laid(base: yaml_nodes.Node, over: yaml_nodes.Mapping | None) -> yaml_nodes.Node:
    """One layer on another, key by key. What is installed is one value: a layer that says it says
    it all, and leaves the variables and secrets below as they are."""
    if over is None or not isinstance(base, yaml_nodes.Mapping):
        return base if over is None else over
    shape = run_shape()
    old, new = (_in_full(layer, "env", shape) for layer in (base, over))
    below, above = old.entries.get("env"), new.entries.get("env")
    if isinstance(below, yaml_nodes.Mapping) and _says_what_is_installed(above):
        kept = {key: one for key, one in below.entries.items() if key not in _INSTALLED}
        old = replace(old, entries={**old.entries, "env": replace(below, entries=kept)})
    return merge(old, new, shape)


def _says_what_is_installed(env: yaml_nodes.Node | None) -> bool:
    """`snapshot: false` and `lock: null` take away what is below, and say nothing else."""
    entries = env.entries if isinstance(env, yaml_nodes.Mapping) else {}
    said = (entries[key] for key in entries.keys() & _INSTALLED)
    return any(
        not (isinstance(one, yaml_nodes.Scalar) and one.plain and not resolve(one.text))
        for one in said
    )


def _elsewhere(run: yaml_nodes.Mapping) -> bool:
    """Whether its ranks run on another machine."""
    backend = _in_full(run, "backend", run_shape()).entries.get("backend")
    kind = backend.entries.get("kind") if isinstance(backend, yaml_nodes.Mapping) else None
    return isinstance(kind, yaml_nodes.Scalar) and not _nothing(kind) and kind.text != DEFAULT


def _packages_said(run: yaml_nodes.Mapping) -> bool:
    """Whether anything says what ranks have installed; `snapshot: false` says it too."""
    image = run.entries.get("image")
    if image is not None and not _nothing(image):
        return True
    env = _in_full(run, "env", run_shape()).entries.get("env")
    entries = env.entries if isinstance(env, yaml_nodes.Mapping) else {}
    return any(not _nothing(entries[key]) for key in entries.keys() & _INSTALLED)


def _told_of_capture(place: Place) -> Diagnostic:
    return Diagnostic(
        code=CAPTURED,
        severity=Severity.INFO,
        summary="ranks get the packages that are installed here, since nothing else is said",
        place=place,
        hint="`functions: {env: {snapshot: false}}` in `sgpu.yml` turns that off; `lock`, "
        "`requirements` or `dependencies` declare others",
    )


def _in_full(layer: yaml_nodes.Mapping, key: str, shape: Shape) -> yaml_nodes.Mapping:
    value = layer.entries.get(key)
    if value is None:
        return layer
    return replace(layer, entries={**layer.entries, key: in_full(value, shape.below(key))})


def _node(value: Json, place: Place) -> yaml_nodes.Node:
    """A value of Python as one that was read: text is text, whatever it looks like."""
    if isinstance(value, str):
        return yaml_nodes.Scalar(value, False, place.line, place.column, place.file)  # noqa: FBT003
    if isinstance(value, Names):
        entries = {key: _node(below, place) for key, below in value.items()}
        keys = dict.fromkeys(entries, place)
        return yaml_nodes.Mapping(entries, keys, place.line, place.column, place.file)
    if isinstance(value, Sequence):
        items = tuple(_node(item, place) for item in value)
        return yaml_nodes.Sequence(items, place.line, place.column, place.file)
    return yaml_nodes.Scalar(canonical(value), True, place.line, place.column, place.file)  # noqa: FBT003


def _masked(node: yaml_nodes.Node) -> yaml_nodes.Node:
    if isinstance(node, yaml_nodes.Scalar):
        return node._replace(text=_hidden(node.text))
    if isinstance(node, yaml_nodes.Sequence):
        return replace(node, items=tuple(_masked(item) for item in node.items))
    entries = {_hidden(key): _masked(below) for key, below in node.entries.items()}
    return replace(node, entries=entries, keys={_hidden(key): at for key, at in node.keys.items()})


def _hidden(text: str) -> str:
    """Text for a spec, which is stored and shown: tokens hidden, what is no text escaped."""
    shown = mask(text.encode("utf-8", "backslashreplace").decode())
    return shown if find_token(shown) is None else "***"  # the head of a key still says "key"


def _nothing(node: yaml_nodes.Node) -> bool:
    return isinstance(node, yaml_nodes.Scalar) and node.plain and is_null(node.text)


def respelt(found: Diagnostic, place: Place, spelled: Names[str, str]) -> Diagnostic:
    """A finding about the decorator in the names of its parameters: `gpus: 8` is `num_gpus=8`."""
    if found.place != place:
        return found

    def put(match: re.Match[str]) -> str:
        name, value = spelled.get(match[1]), match[2]
        if name is None:
            return match[0]
        if value is None:
            return f"`{name}`"
        return f"`{name}={value if _BARE.fullmatch(value) else canonical(value)}`"

    hint = found.hint and _FIELD.sub(put, found.hint)
    return replace(found, summary=_FIELD.sub(put, found.summary), hint=hint)
