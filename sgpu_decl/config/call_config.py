"""The call of a decorated function as a run, as if a run file existed for it.

Later layers win over earlier ones:

    fallback       the defaults of calls
    functions      the block of the project
    the decorator  and what the call itself overrides
    targets        `targets.<t>.functions` of the chosen target
    --set          options of the command line

If no layer declares packages and ranks run on another machine, they get the packages of the
caller's interpreter, as a snapshot.
"""

import re
from collections.abc import Mapping as Names
from collections.abc import Sequence
from dataclasses import replace

from sgpu_decl.config.backend import DEFAULT
from sgpu_decl.config.file_reader import (
    Overrides,
    digest_of,
    loaded_run,
    masked_in_order,
    with_options,
)
from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.config.project_files import ParsedFiles, ProjectFiles
from sgpu_decl.config.project_reader import ReadProject, read_project
from sgpu_decl.config.run_layers import PACKAGE_FIELDS, in_full_at, merged_layers
from sgpu_decl.config.run_reader import at_new_places, read_run
from sgpu_decl.config.target_chain import target_chain
from sgpu_decl.config.text_types import Duration
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.tokens import find_token, mask_found
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.interpolation import interpolate
from sgpu_decl.text.overrides import merge, set_value

CAPTURED = "packages_captured"
"""The code of the finding that ranks get the packages of the caller's interpreter."""

# Literals in messages: a field (`gpus`), or a field and its value (`gpus: 8`).
_FIELD = re.compile(r"`([a-z_]+(?:\.[A-Za-z0-9_]+)*)(?:: ([^`]*))?`")
_BARE = re.compile(r"-?[0-9.]+|true|false|null")


def declare_call(
    fields: Names[str, Json],
    *,
    name: str,
    place: Place,
    fallback: Names[str, Json],
    project: ParsedFiles | None,
    overrides: Overrides,
    spelled: Names[str, str] | None = None,
    captured: bool = False,
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """Make a run from a decorator and a project file.

    Args:
        fields: the fields of a run file that the decorator and the call set, as literal values
            without references. In `args`, text that looks like a token is masked; the ranks get the
            real arguments in a file.
        name: the name of the run.
        place: where the decorator stands.
        fallback: the values of fields that neither decorator nor project sets.
        project: the project file. Its errors are reported, as by a plan.
        overrides: of the project file, which alone declares targets and has references.
        spelled: the names that the decorator's parameters have, by the field that they give
            (`{"type": "gpu_type"}`); messages about them use these names.
        captured: whether ranks on another machine get a snapshot of the caller's interpreter if no
            layer declares packages.

    Returns:
        What `file_reader.read` gives for a run file, `None` if anything is wrong, and every finding
        in order.
    """
    empty = yaml_nodes.Mapping({}, {}, place.line, place.column, place.file)
    files = ProjectFiles(kind="project", file=place.file, root=empty)
    findings: tuple[Diagnostic, ...] = ()
    if project is not None:
        project_files, findings = project
        if project_files is None:
            return None, masked_in_order(findings)
        files = project_files
    root, context, new_findings = with_options(files, overrides)
    project_content, more = read_project(root, context)
    findings = (*findings, *new_findings, *more)
    below, above = _layers(files.root, overrides.target, overrides.sets)
    node = _node(dict(fallback), place)
    for layer in (
        _resolved(below, project_content),
        _declared_layer(fields, name, place),
        _resolved(above, project_content),
    ):
        node = merged_layers(node, layer)
    assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101 - `None` layers were skipped
    node, keep_warm = yaml_nodes.without(node, "keep_warm")
    if captured and _runs_elsewhere(node) and not _declares_packages(node):
        node = merge(_node({"env": {"snapshot": True}}, place), node, run_shape())
        assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101 - of two mappings
        findings = (*findings, _capture_finding(place))
    declared_runs, new_findings = read_run(
        node, None, place, replace(project_content.context, references=False)
    )
    new_findings = tuple(
        respelt(one, place, spelled or {}) for one in at_new_places(new_findings, findings)
    )
    if has_errors(findings):  # what is missing may be in the part that cannot be read
        new_findings = tuple(one for one in new_findings if one.code != "missing_key")
    ordered = masked_in_order((*findings, *new_findings))
    if has_errors(ordered):
        return None, ordered
    runs = tuple(loaded_run(one) for one in declared_runs)
    loaded = Loaded(
        kind="run", file=place.file, project_name=project_content.name, target=overrides.target,
        runs=runs, config_digest=digest_of(runs), keep_warm=_seconds(keep_warm),
    )  # fmt: skip
    return loaded, ordered


def _layers(
    root: yaml_nodes.Mapping, target: str | None, sets: Sequence[tuple[str, str]]
) -> tuple[yaml_nodes.Node | None, yaml_nodes.Node | None]:
    """The layer below the decorator (`functions`), and the one above it (a target, options)."""
    block = root.entries.get("targets")
    targets = block.entries if isinstance(block, yaml_nodes.Mapping) else {}
    above: yaml_nodes.Node | None = None
    for name in target_chain(targets, target or ""):
        over = targets[name]
        layer = over.entries.get("functions") if isinstance(over, yaml_nodes.Mapping) else None
        if layer is not None:
            above = layer if above is None else merge(above, layer, run_shape())
    below = root.entries.get("functions")
    holder = replace(root, entries={} if above is None else {"functions": above})
    for path, value in sets:
        if path.partition(".")[0] == "functions":
            holder, _ = set_value(holder, path, value, project_shape())  # refusals are known
    above = holder.entries.get("functions")
    return (None if above is not None and yaml_nodes.is_nothing(above) else below), above


def _resolved(layer: yaml_nodes.Node | None, project: ReadProject) -> yaml_nodes.Mapping | None:
    """A layer with its references resolved. `read_project` has reported those that cannot be."""
    if not isinstance(layer, yaml_nodes.Mapping):
        return None
    changed = interpolate(layer, project.context.scope({}))
    return changed if isinstance(changed, yaml_nodes.Mapping) else None


def _declared_layer(fields: Names[str, Json], name: str, place: Place) -> yaml_nodes.Mapping:
    node = _node({**fields, "name": name}, place)
    assert isinstance(node, yaml_nodes.Mapping)  # noqa: S101 - of a mapping
    args = node.entries.get("args")
    if args is None:
        return node
    return replace(node, entries={**node.entries, "args": _masked(args)})


def _runs_elsewhere(run: yaml_nodes.Mapping) -> bool:
    """Whether its ranks run on another machine."""
    backend = in_full_at(run, "backend", run_shape()).entries.get("backend")
    kind = backend.entries.get("kind") if isinstance(backend, yaml_nodes.Mapping) else None
    if not isinstance(kind, yaml_nodes.Scalar) or yaml_nodes.is_nothing(kind):
        return False
    return kind.text != DEFAULT


def _declares_packages(run: yaml_nodes.Mapping) -> bool:
    """Whether any layer declares the packages of ranks. `snapshot: false` does."""
    image = run.entries.get("image")
    if image is not None and not yaml_nodes.is_nothing(image):
        return True
    env = in_full_at(run, "env", run_shape()).entries.get("env")
    entries = env.entries if isinstance(env, yaml_nodes.Mapping) else {}
    return any(not yaml_nodes.is_nothing(entries[key]) for key in entries.keys() & PACKAGE_FIELDS)


def _capture_finding(place: Place) -> Diagnostic:
    return Diagnostic(
        code=CAPTURED,
        severity=Severity.INFO,
        summary="no environment is declared: ranks get a snapshot of this Python",
        place=place,
        hint="`functions: {env: {snapshot: false}}` in `sgpu.yml` turns that off; `lock`, "
        "`requirements` or `dependencies` declare others",
    )


def _node(value: Json, place: Place) -> yaml_nodes.Node:
    """The YAML node of a Python value. Text stays text, whatever it looks like."""
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
        return node._replace(text=_masked_text(node.text))
    if isinstance(node, yaml_nodes.Sequence):
        return replace(node, items=tuple(_masked(item) for item in node.items))
    entries = {_masked_text(key): _masked(below) for key, below in node.entries.items()}
    return replace(
        node, entries=entries, keys={_masked_text(key): at for key, at in node.keys.items()}
    )


def _masked_text(text: str) -> str:
    """Text for a spec, which is stored and shown: tokens are masked, invalid text is escaped."""
    shown = mask_found(text.encode("utf-8", "backslashreplace").decode())
    return shown if find_token(shown) is None else "***"  # the head of a key still says "key"


def _seconds(duration: yaml_nodes.Node | None) -> float:
    """The seconds of a duration that the project's model has accepted; 0 for none."""
    if not isinstance(duration, yaml_nodes.Scalar) or yaml_nodes.is_nothing(duration):
        return 0.0
    return Duration.read(duration.text).seconds


def respelt(finding: Diagnostic, place: Place, spelled: Names[str, str]) -> Diagnostic:
    """A finding about the decorator in the names of its parameters: `gpus: 8` is `num_gpus=8`."""
    if finding.place != place:
        return finding

    def put(match: re.Match[str]) -> str:
        name, value = spelled.get(match[1]), match[2]
        if name is None:
            return match[0]
        if value is None:
            return f"`{name}`"
        return f"`{name}={value if _BARE.fullmatch(value) else canonical(value)}`"

    hint = finding.hint and _FIELD.sub(put, finding.hint)
    return replace(finding, summary=_FIELD.sub(put, finding.summary), hint=hint)
