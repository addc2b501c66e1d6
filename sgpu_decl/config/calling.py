"""A call of a decorated function as a run, as if somebody had written a run file for it.

What is said last wins:

    fallback       what holds where nobody speaks
    functions      the block of the project
    the decorator  and what the call itself overrides
    targets        `targets.<t>.functions` of the chosen target
    --set          of the command line, where there is one
"""

import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Names
from dataclasses import replace
from functools import cache

from sgpu_decl.config.crossing import ORIGINS
from sgpu_decl.config.declaring import beyond, read_run
from sgpu_decl.config.reading import Loaded, digest_of, loaded_run, overlaid, told
from sgpu_decl.config.shaping import project_shape, run_shape
from sgpu_decl.config.sharing import ReadProject, read_project
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.masking import find_token, mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.text import nodes
from sgpu_decl.text.interpolating import interpolate
from sgpu_decl.text.limits import PROJECT_FILE
from sgpu_decl.text.loading import load
from sgpu_decl.text.merging import in_full, merge, set_value
from sgpu_decl.text.resolving import is_null, resolve
from sgpu_decl.text.shape import Shape

__all__ = ["declare_call", "respelt"]

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

    Returns:
        What `reading.read` gives for a run file, `None` where anything is wrong, and every finding
        in order. `source` is the text of the project file.
    """
    written = nodes.Mapping({}, {}, place.line, place.column, place.file)
    document = nodes.Document(file=place.file, source="", root=written, nodes=0, size=0)
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
    assert isinstance(node, nodes.Mapping)  # noqa: S101 - layers that are none were left out
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
    root: nodes.Mapping, target: str | None, sets: Sequence[tuple[str, str]]
) -> tuple[nodes.Node | None, nodes.Node | None]:
    """What `functions` says below the decorator, and what a target and options say above it."""
    targets = root.entries.get("targets")
    over = targets.entries.get(target or "") if isinstance(targets, nodes.Mapping) else None
    above = over.entries.get("functions") if isinstance(over, nodes.Mapping) else None
    below = root.entries.get("functions")
    holder = replace(root, entries={} if above is None else {"functions": above})
    for path, value in sets:
        if path.partition(".")[0] == "functions":
            holder, _ = set_value(holder, path, value, project_shape())  # refusals are known
    above = holder.entries.get("functions")
    return (None if above is not None and _nothing(above) else below), above


def _resolved(layer: nodes.Node | None, project: ReadProject) -> nodes.Mapping | None:
    """A layer with its references filled in. What cannot be filled in is known from the project."""
    if not isinstance(layer, nodes.Mapping):
        return None
    changed = interpolate(layer, project.around.scope({}))
    return changed if isinstance(changed, nodes.Mapping) else None


def _given(given: Names[str, Json], name: str, place: Place) -> nodes.Mapping:
    node = _node({**given, "name": name}, place)
    assert isinstance(node, nodes.Mapping)  # noqa: S101 - of a mapping
    args = node.entries.get("args")
    if args is None:
        return node
    return replace(node, entries={**node.entries, "args": _masked(args)})


def _laid(base: nodes.Node, over: nodes.Mapping | None) -> nodes.Node:
    """One layer on another, key by key. What is installed is one value: a layer that says it says
    it all, and leaves the variables and secrets below as they are."""
    if over is None or not isinstance(base, nodes.Mapping):
        return base if over is None else over
    shape = run_shape()
    old, new = (_in_full(layer, "env", shape) for layer in (base, over))
    below, above = old.entries.get("env"), new.entries.get("env")
    if isinstance(below, nodes.Mapping) and _says_what_is_installed(above):
        kept = {key: one for key, one in below.entries.items() if key not in _INSTALLED}
        old = replace(old, entries={**old.entries, "env": replace(below, entries=kept)})
    return merge(old, new, shape)


def _says_what_is_installed(env: nodes.Node | None) -> bool:
    """`snapshot: false` and `lock: null` take away what is below, and say nothing else."""
    entries = env.entries if isinstance(env, nodes.Mapping) else {}
    said = (entries[key] for key in entries.keys() & _INSTALLED)
    return any(
        not (isinstance(one, nodes.Scalar) and one.plain and not resolve(one.text)) for one in said
    )


def _in_full(layer: nodes.Mapping, key: str, shape: Shape) -> nodes.Mapping:
    value = layer.entries.get(key)
    if value is None:
        return layer
    return replace(layer, entries={**layer.entries, key: in_full(value, shape.below(key))})


def _node(value: Json, place: Place) -> nodes.Node:
    """A value of Python as one that was read: text is text, whatever it looks like."""
    if isinstance(value, str):
        return nodes.Scalar(value, False, place.line, place.column, place.file)  # noqa: FBT003
    if isinstance(value, Names):
        entries = {key: _node(below, place) for key, below in value.items()}
        keys = dict.fromkeys(entries, place)
        return nodes.Mapping(entries, keys, place.line, place.column, place.file)
    if isinstance(value, Sequence):
        items = tuple(_node(item, place) for item in value)
        return nodes.Sequence(items, place.line, place.column, place.file)
    return nodes.Scalar(canonical(value), True, place.line, place.column, place.file)  # noqa: FBT003


def _masked(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.Scalar):
        return node._replace(text=_hidden(node.text))
    if isinstance(node, nodes.Sequence):
        return replace(node, items=tuple(_masked(item) for item in node.items))
    entries = {_hidden(key): _masked(below) for key, below in node.entries.items()}
    return replace(node, entries=entries, keys={_hidden(key): at for key, at in node.keys.items()})


def _hidden(text: str) -> str:
    """Text for a spec, which is stored and shown: tokens hidden, what is no text escaped."""
    shown = mask(text.encode("utf-8", "backslashreplace").decode())
    return shown if find_token(shown) is None else "***"  # the head of a key still says "key"


def _nothing(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Scalar) and node.plain and is_null(node.text)


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
