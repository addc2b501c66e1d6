"""The run or project file of a project: found, and validated. Which of its arguments are text, as
their source says; the `backend` blocks that it names."""

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.repository import repository_top
from sgpu_decl.config.project_files import nothing_included, read_files
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors, in_order
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.planning.checkout import Checkout
from sgpu_decl.planning.location import ROOT_FILE, absolute, variable_words
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_text import ProjectText, holds_plan, invalid_file, read_bytes
from sgpu_decl.regular_files import leads_out
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import resolve

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.file_reader import Overrides
    from sgpu_decl.config.loaded import Loaded
    from sgpu_decl.model.address import Address


class EntrypointTexts:
    """The roots of code start from `folder`, that of the run or project file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[tuple[str, str], Mapping[str, Shape]] = {}

    def __call__(self, entrypoint: str, root: str) -> Mapping[str, Shape]:
        key = (entrypoint, root)
        if key not in self._answers:
            from sgpu_decl.code.signatures import text_arguments  # with `ast`

            self._answers[key] = text_arguments((self._folder / root).resolve(), entrypoint)
        return self._answers[key]


def as_recorded(spec: Spec, recorded: Spec, texts: Mapping[str, Shape]) -> Spec:
    """A spec with the recorded values of arguments that are text now, where they are what the text
    looks like: earlier versions gave functions numbers where they want text."""
    args, old = spec.fields.get("args"), recorded.fields.get("args")
    if not (isinstance(args, dict) and isinstance(old, dict)):
        return spec
    same = {
        name: old[name]
        for name, shape in texts.items()
        if name in args and name in old and _looks_like(args[name], old[name], shape)
    }
    return Spec.of({**spec.fields, "args": {**args, **same}})


def _looks_like(new: Json, old: Json, shape: Shape | None) -> bool:
    if shape is None or new == old:
        return new == old
    if shape.text:
        looks = resolve(new) if isinstance(new, str) else None
        return looks is not None and looks == old and type(looks) is type(old)
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        pairs = zip(new, old, strict=True)
        return all(_looks_like(one, other, shape.items) for one, other in pairs)
    if isinstance(new, dict) and isinstance(old, dict) and new.keys() == old.keys():
        return all(_looks_like(new[key], old[key], shape.values) for key in new)
    return False


_VALUES = "a file with a line `NAME: VALUE` for each variable"
_NO_YAML = {".py": "a Python file", ".ipynb": "a notebook"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A file that holds no errors. `findings` are its warnings, `targets` the targets that were
    checked, `runs` and `jobs` what these declare, each address once."""

    loaded: "Loaded"
    findings: tuple[Diagnostic, ...]
    targets: tuple[str, ...] = ()
    runs: "tuple[Address, ...]" = ()
    jobs: "tuple[Address, ...]" = ()


def read_file(project: Project, checkout: Checkout | None = None) -> Validated:
    """Read and validate the file of a project.

    Args:
        checkout: the git checkout of the project, for a caller that uses it afterwards too.

    Raises:
        NotFound: there is no file.
        InvalidInput: it is a saved plan, or holds errors; all of them are in `diagnostics`.
    """
    text = text_of(project)
    return _valid(text.values(overrides_of(project, checkout)), project)


def read_text(text: str, project: Project, checkout: Checkout) -> Validated:
    """Validate the text of a run file that is not there, and that includes nothing.

    Raises:
        InvalidInput: it holds errors; all of them are in `diagnostics`.
    """
    from sgpu_decl.config.file_reader import read

    overrides = replace(overrides_of(project, checkout), variable_files=())
    return _valid(read(read_files(text, project.shown, nothing_included), overrides), project)


def overrides_of(project: Project, checkout: Checkout | None = None) -> "Overrides":
    """What a command adds to the file of a project.

    Raises:
        NotFound: a file of values is not there.
        SgpuError: one cannot be read.
    """
    from sgpu_decl.config.file_reader import Overrides

    checkout = checkout or Checkout(project.root)
    return Overrides(
        target=project.target,
        variables=project.location.variables,
        sets=project.location.sets,
        variable_files=tuple(
            (read_bytes(file, holding=_VALUES), os.fspath(file))
            for file in project.location.variable_files
        ),
        environ=os.environ,
        git=lambda: checkout.facts,
        text_arguments=EntrypointTexts(absolute(project.file or project.root / "run.yaml").parent),
    )


def _valid(reading: "tuple[Loaded | None, tuple[Diagnostic, ...]]", project: Project) -> Validated:
    loaded, findings = reading
    findings = ordered(findings, project)
    if loaded is None or has_errors(findings):
        raise invalid_file(project.shown, findings)
    return Validated(loaded=loaded, findings=findings)


def ordered(findings: Sequence[Diagnostic], project: Project) -> tuple[Diagnostic, ...]:
    """The findings about a file as they are shown: sorted, and with who names a wrong target."""
    words = variable_words(project.target or "")
    return tuple(
        replace(one, summary=one.summary + words) if one.code == "unknown_target" else one
        for one in in_order(findings)
    )


def refuse_warnings(validated: Validated) -> None:
    """Take the warnings of a file for errors.

    Raises:
        InvalidInput: there are warnings.
    """
    warned = [one for one in validated.findings if one.severity is Severity.WARNING]
    if warned:
        errors = tuple(replace(one, severity=Severity.ERROR) for one in warned)
        others = (one for one in validated.findings if one.severity is not Severity.WARNING)
        raise invalid_file(validated.loaded.file, in_order((*errors, *others)))


def text_of(project: Project) -> ProjectText:
    """The run or project file of a project.

    Raises:
        NotFound: there is none.
        InvalidInput: it is a saved plan or Python.
        SgpuError: it cannot be read.
    """
    if project.file is None:
        raise NotFound(
            f"there is no `sgpu.yml` and no `run.yaml` {_where(project.root)}",
            hint="name a file, or write a first one with `sgpu init`",
        )
    _refuse_link_out(project)
    if holds_plan(project.file):
        raise InvalidInput(
            f"`{project.shown}` is a saved plan, not a run or project file",
            hint=f"carry it out with `sgpu apply {project.shown}`, or look at it with "
            f"`sgpu show {project.shown}`",
        )
    text = ProjectText(project.file, project.shown)
    _ = text.content  # a wrong path is the first thing to say
    if (kind := _NO_YAML.get(project.file.suffix)) is not None:
        raise InvalidInput(
            f"`{project.shown}` is {kind}, not a run or project file",
            hint="name a YAML file that starts it: `sgpu init` writes a first one; or decorate a "
            "function with `@distributed` and call it from Python",
        )
    return text


def _refuse_link_out(project: Project) -> None:
    """Refuse a link out of the project: the project may be somebody else's, and must not make
    sgpu show other files of this user."""
    file = project.file
    assert file is not None  # noqa: S101  looked at before
    if leads_out(file, project.root, repository_top(project.root) or project.root, Path.cwd()):
        raise SgpuError(
            f"`{project.shown}` is a link to `{os.path.realpath(file)}`, outside of the project",
            hint="copy the file here, or name the real file and give the project folder with "
            "`--project`",
            code="unreadable",
        )


def _where(root: Path) -> str:
    return "here" if root == Path.cwd() else f"in `{root}`"


def backend_blocks(project: Project, owner: str) -> "tuple[BackendOptions, ...]":
    """Return the blocks of the runs and jobs in the project's file, and in the file `owner` of a
    run, for the target. A file that cannot be read names nothing."""
    root = os.path.realpath(project.root)
    blocks: list[BackendOptions] = []
    for name in dict.fromkeys((ROOT_FILE, owner)):
        file = project.root / name
        if not name or not os.path.realpath(file).startswith(f"{root}{os.sep}"):
            continue
        other = copy.copy(project)
        other.file, other.location = file, replace(project.location, sets=())
        try:
            loaded = read_file(other).loaded
        except SgpuError:
            continue
        blocks += [run.config.backend for run in loaded.runs]
        blocks += [job.config.backend for job in loaded.jobs if job.config.backend is not None]
    return tuple(blocks)
