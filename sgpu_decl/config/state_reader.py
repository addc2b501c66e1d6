"""The `state` block of a project file, read by itself: before anything else of the file matters."""

from dataclasses import replace

from pydantic import ValidationError

from sgpu_decl.config.error_messages import ErrorExplainer
from sgpu_decl.config.file_reader import Overrides, masked_in_order, with_options
from sgpu_decl.config.plain_values import Conversion, project_shape
from sgpu_decl.config.project_files import ProjectFiles
from sgpu_decl.config.state import SharedState
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.target import Mode
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.interpolation import interpolate
from sgpu_decl.text.variables import read_values

_KEY = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredState:
    """Where a target of a project keeps its state, and the place of the block."""

    block: SharedState
    project: str
    mode: Mode
    place: Place


def read_state(
    files: ProjectFiles, overrides: Overrides
) -> tuple[DeclaredState | None, tuple[Diagnostic, ...]]:
    """Read where the state of a target lies.

    Returns:
        None where the file names no store; and what is wrong with the block alone: whoever reads
        the whole file finds the rest.
    """
    if files.kind != "project":
        return None, ()
    values, findings = read_values(overrides.variable_files)
    if has_errors(findings):
        return None, findings
    root, context, _ = with_options(files, replace(overrides, sets=()), values)
    block = root.entries.get(_KEY)
    if block is None or yaml_nodes.is_nothing(block):
        return None, ()
    found: list[Diagnostic] = []
    if context.references:
        scope = context.scope({})
        block = interpolate(block, scope)
        found += scope.findings
    place = root.keys[_KEY]
    if not isinstance(block, yaml_nodes.Mapping):
        wrong = Diagnostic(
            code="wrong_type",
            summary="`state` must be a mapping",
            place=place,
            hint="write `state: {kind: folder, path: /mnt/team/sgpu-state}`",
        )
        return None, (wrong,)
    shape = project_shape().keys[_KEY]
    conversion = Conversion()
    data = conversion.plain(block, shape)
    found += conversion.findings
    state: SharedState | None = None
    try:
        state = SharedState.model_validate(data)
    except ValidationError as error:
        explainer = ErrorExplainer(node=block, shape=shape, prefix=_KEY, place=place)
        found += explainer.errors(error.errors(include_url=False, include_input=False))
    name = _text(root.entries.get("project"), "name")
    if name is None:
        found.append(
            Diagnostic(
                code="missing_key",
                summary="a shared state needs the name of the project",
                place=place,
                hint="add `project: {name: …}`; it is part of where the state lies",
            )
        )
    ordered = masked_in_order(found)
    if state is None or name is None or has_errors(ordered):
        return None, ordered
    mode = root.entries.get("mode")
    developing = isinstance(mode, yaml_nodes.Scalar) and mode.text == Mode.DEVELOPMENT
    return (
        DeclaredState(
            block=state,
            project=name,
            mode=Mode.DEVELOPMENT if developing else Mode.PRODUCTION,
            place=place,
        ),
        ordered,
    )


def _text(block: yaml_nodes.Node | None, key: str) -> str | None:
    node = block.entries.get(key) if isinstance(block, yaml_nodes.Mapping) else None
    return node.text if isinstance(node, yaml_nodes.Scalar) and node.text else None
