"""The run or project file of a project: found, and validated."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.config.project_files import nothing_included, read_files
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors, in_order
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.facts.checkout import Checkout
from sgpu_decl.facts.file_kind import holds_plan
from sgpu_decl.facts.location import Location, Opened, absolute, variable_words
from sgpu_decl.facts.project_text import ProjectText, invalid_file, read_bytes
from sgpu_decl.facts.text_arguments import EntrypointTexts
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.regular_files import leads_out
from sgpu_decl.staging.repository import repository_top

if TYPE_CHECKING:
    from sgpu_decl.config.file_reader import Overrides
    from sgpu_decl.config.loaded import Loaded

__all__ = [
    "Validated",
    "ordered",
    "overrides_of",
    "read_file",
    "read_text",
    "refuse_warnings",
    "text_of",
]

_VALUES = "a file with a line `NAME: VALUE` for each variable"
_NO_YAML = {".py": "a Python file", ".ipynb": "a notebook"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A file that holds no errors. `findings` are its warnings, and `targets` the targets that were
    checked."""

    loaded: "Loaded"
    findings: tuple[Diagnostic, ...]
    targets: tuple[str, ...] = ()


def read_file(opened: Opened, location: Location, checkout: Checkout | None = None) -> Validated:
    """Read and validate the file of a project.

    Args:
        checkout: the git checkout of the project, for a caller that uses it afterwards too.

    Raises:
        NotFound: there is no file.
        InvalidInput: it is a saved plan, or holds errors; all of them are in `diagnostics`.
    """
    text = text_of(opened)
    return _valid(text.values(overrides_of(opened, location, checkout)), opened)


def read_text(text: str, opened: Opened, location: Location, checkout: Checkout) -> Validated:
    """Validate the text of a run file that is not there, and that includes nothing.

    Raises:
        InvalidInput: it holds errors; all of them are in `diagnostics`.
    """
    from sgpu_decl.config.file_reader import read

    overrides = overrides_of(opened, replace(location, variable_files=()), checkout)
    return _valid(read(read_files(text, opened.shown, nothing_included), overrides), opened)


def overrides_of(
    opened: Opened, location: Location, checkout: Checkout | None = None
) -> "Overrides":
    """What a command adds to the file of a project.

    Raises:
        NotFound: a file of values is not there.
        SgpuError: one cannot be read.
    """
    from sgpu_decl.config.file_reader import Overrides

    checkout = checkout or Checkout(opened.root)
    return Overrides(
        target=opened.target,
        variables=location.variables,
        sets=location.sets,
        variable_files=tuple(
            (read_bytes(file, holding=_VALUES), os.fspath(file)) for file in location.variable_files
        ),
        environ=os.environ,
        git=lambda: checkout.facts,
        text_arguments=EntrypointTexts(absolute(opened.file or opened.root / "run.yaml").parent),
    )


def _valid(reading: "tuple[Loaded | None, tuple[Diagnostic, ...]]", opened: Opened) -> Validated:
    loaded, findings = reading
    findings = ordered(findings, opened)
    if loaded is None or has_errors(findings):
        raise invalid_file(opened.shown, findings)
    return Validated(loaded=loaded, findings=findings)


def ordered(findings: Sequence[Diagnostic], opened: Opened) -> tuple[Diagnostic, ...]:
    """The findings about a file as they are shown: sorted, and with who names a wrong target."""
    words = variable_words(opened.target or "")
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


def text_of(opened: Opened) -> ProjectText:
    """The run or project file of a project.

    Raises:
        NotFound: there is none.
        InvalidInput: it is a saved plan or Python.
        SgpuError: it cannot be read.
    """
    if opened.file is None:
        raise NotFound(
            f"there is no `sgpu.yml` and no `run.yaml` {_where(opened.root)}",
            hint="name a file, or write a first one with `sgpu init`",
        )
    _refuse_link_out(opened)
    if holds_plan(opened.file):
        raise InvalidInput(
            f"`{opened.shown}` is a saved plan, not a run or project file",
            hint=f"carry it out with `sgpu apply {opened.shown}`, or look at it with "
            f"`sgpu show {opened.shown}`",
        )
    text = ProjectText(opened.file, opened.shown)
    _ = text.content  # a wrong path is the first thing to say
    if (kind := _NO_YAML.get(opened.file.suffix)) is not None:
        raise InvalidInput(
            f"`{opened.shown}` is {kind}, not a run or project file",
            hint="name a YAML file that starts it: `sgpu init` writes a first one; or decorate a "
            "function with `@distributed` and call it from Python",
        )
    return text


def _refuse_link_out(opened: Opened) -> None:
    """Refuse a link out of the project: the project may be somebody else's, and must not make
    sgpu show other files of this user."""
    file = opened.file
    assert file is not None  # noqa: S101  looked at before
    if leads_out(file, opened.root, repository_top(opened.root) or opened.root, Path.cwd()):
        raise SgpuError(
            f"`{opened.shown}` is a link to `{os.path.realpath(file)}`, outside of the project",
            hint="copy the file here, or name the real file and give the project folder with "
            "`--project`",
            code="unreadable",
        )


def _where(root: Path) -> str:
    return "here" if root == Path.cwd() else f"in `{root}`"
