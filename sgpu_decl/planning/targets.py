"""Whether a target exists, for commands that look at the state and read no file."""

from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.location import DEFAULT_FILES, variable_words
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_text import ProjectText


def refuse_unknown(project: Project, target: str, known_targets: Collection[str]) -> None:
    """Check that a file of the project declares a target that has no state.

    Files are only parsed; their runs may hold errors.

    Args:
        known_targets: the targets that have a state.

    Raises:
        SgpuError: no file declares the target.
        InvalidInput: a file cannot be parsed, so its targets are not known.
    """
    declared = {file: ProjectText(file).targets() for file in _files(project)}
    if any(target in names for names in declared.values()):
        return
    applied = [name for name in known_targets if name != BASE]
    near = nearest(target, (*chain.from_iterable(declared.values()), *applied))
    known = [f"`{file}` declares {_listed(names)}" for file, names in declared.items() if names]
    if applied:
        known.append(f"`{project.state_dir.parent.name}/` knows {_listed(applied)}")
    if not known:
        known = ["no file here declares a target: leave out `-t`"]
    raise SgpuError(
        f"there is no target `{target}`{variable_words(target)}",
        hint=(f"did you mean `{near}`? " if near else "") + "; ".join(known),
        code="unknown_target",
    )


def known_targets(project: Project, applied: Collection[str]) -> tuple[str, ...]:
    """The targets that the files of a project declare, and those that have a state.

    Raises:
        InvalidInput: a file cannot be parsed.
    """
    declared = chain.from_iterable(ProjectText(file).targets() for file in _files(project))
    return tuple(dict.fromkeys(name for name in (*declared, *applied) if name != BASE))


def _files(project: Project) -> list[Path]:
    """The file of this folder, and those of the project folder, which may lie above."""
    here = [project.file] if project.file is not None else []
    above = [project.root / name for name in DEFAULT_FILES]
    resolved = {path.resolve(): path for path in reversed([*here, *above]) if path.is_file()}
    return sorted(resolved.values())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
