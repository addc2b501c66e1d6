"""The run or project file of a project: its bytes and its content."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.config.project_files import nothing_included
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors, in_order
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.facts.checkout import Checkout
from sgpu_decl.facts.file_kind import holds_plan
from sgpu_decl.facts.included_files import FileReader
from sgpu_decl.facts.location import Location, Opened, absolute, variable_words
from sgpu_decl.facts.text_arguments import EntrypointTexts
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.regular_files import NotRegular, leads_out, open_regular
from sgpu_decl.staging.repository import repository_top
from sgpu_decl.text.file_limits import PROJECT_FILE

if TYPE_CHECKING:
    from sgpu_decl.config.include import ReadIncluded
    from sgpu_decl.config.loaded import Loaded

__all__ = [
    "Validated",
    "file_bytes",
    "invalid_file",
    "ordered",
    "read_bytes",
    "read_file",
    "read_text",
    "refuse_warnings",
    "variable_files",
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
    raw, values = file_bytes(opened), variable_files(location)
    assert opened.file is not None  # noqa: S101  it was read
    loaded, findings = _read_valid(
        raw,
        opened,
        location,
        checkout or Checkout(opened.root),
        FileReader(absolute(opened.file), opened.shown),
        values,
    )
    return Validated(loaded=loaded, findings=findings)


def read_text(text: str, opened: Opened, location: Location, checkout: Checkout) -> Validated:
    """Validate the text of a run file that is not there, and that includes nothing.

    Raises:
        InvalidInput: it holds errors; all of them are in `diagnostics`.
    """
    loaded, findings = _read_valid(text.encode(), opened, location, checkout, nothing_included)
    return Validated(loaded=loaded, findings=findings)


def _read_valid(
    raw: bytes,
    opened: Opened,
    location: Location,
    checkout: Checkout,
    read_included: "ReadIncluded",
    values: Sequence[tuple[bytes, str]] = (),
) -> "tuple[Loaded, tuple[Diagnostic, ...]]":
    from sgpu_decl.config.file_reader import read

    loaded, findings = read(
        raw,
        opened.shown,
        target=opened.target,
        variables=location.variables,
        sets=location.sets,
        environ=os.environ,
        git=lambda: checkout.facts,
        read_included=read_included,
        variable_files=values,
        text_arguments=EntrypointTexts(absolute(opened.file or opened.root / "run.yaml").parent),
    )
    findings = ordered(findings, opened)
    if loaded is None or has_errors(findings):
        raise invalid_file(opened.shown, findings)
    return loaded, findings


def ordered(findings: Sequence[Diagnostic], opened: Opened) -> tuple[Diagnostic, ...]:
    """The findings about a file as they are shown: sorted, and with who names a wrong target."""
    words = variable_words(opened.target or "")
    return tuple(
        replace(one, summary=one.summary + words) if one.code == "unknown_target" else one
        for one in in_order(findings)
    )


def invalid_file(shown: str, findings: tuple[Diagnostic, ...]) -> InvalidInput:
    """The error of a file that is wrong, or that only the options of the command do not fit. It
    names another file if all mistakes stand there: one that is included, or a `--var-file`."""
    wrong = [one for one in findings if one.severity is Severity.ERROR]
    if all(map(_is_about_option, wrong)):
        message = f"the options of this command do not fit `{shown}`"
    else:
        places = {one.place for one in wrong if not _is_about_option(one)}
        files = {shown if place is None else place.file for place in places}
        message = f"`{files.pop() if len(files) == 1 else shown}` is not valid"
    error = InvalidInput(message, diagnostics=findings)
    for one in findings:  # shown in tracebacks
        where = f"{one.place}: " if one.place is not None else ""
        hint = f"; {one.hint}" if one.hint else ""
        error.add_note(f"{where}{one.severity}: {one.summary}{hint}")
    return error


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


def _is_about_option(finding: Diagnostic) -> bool:
    if finding.code == "unknown_target":  # its place is where targets are declared
        return True
    return finding.place is not None and finding.place.is_option


def file_bytes(opened: Opened) -> bytes:
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
    raw = read_bytes(opened.file)
    if (kind := _NO_YAML.get(opened.file.suffix)) is not None:
        raise InvalidInput(
            f"`{opened.shown}` is {kind}, not a run or project file",
            hint="name a YAML file that starts it: `sgpu init` writes a first one; or decorate a "
            "function with `@distributed` and call it from Python",
        )
    return raw


def variable_files(location: Location) -> tuple[tuple[bytes, str], ...]:
    """The contents and names of the files that give values to variables.

    Raises:
        NotFound: one is not there.
        SgpuError: one cannot be read.
    """
    return tuple(
        (read_bytes(file, holding=_VALUES), os.fspath(file)) for file in location.variable_files
    )


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


def read_bytes(file: Path, *, holding: str | None = None) -> bytes:
    """The bytes of a run or project file. Of a file that is too large, only as many as show that.

    Args:
        holding: what the file is instead, for hints.

    Raises:
        NotFound: it is not there.
        SgpuError: it cannot be read.
    """
    try:
        with open_regular(file) as opened:
            return opened.read(PROJECT_FILE.size + 1)
    except FileNotFoundError:
        raise NotFound(f"`{file}` does not exist", hint="check the path") from None
    except IsADirectoryError:
        raise SgpuError(
            f"`{file}` is a folder",
            hint=f"name {holding}"
            if holding
            else f"name a run file in it, such as `{file / 'run.yaml'}`",
            code="unreadable",
        ) from None
    except NotRegular as error:
        raise SgpuError(
            f"`{file}` cannot be read: {error.strerror}",
            hint=f"name {holding}" if holding else "write the YAML to a file, and name that",
            code="unreadable",
        ) from None
    except OSError as error:
        raise SgpuError(
            f"`{file}` cannot be read: {(error.strerror or str(error)).lower()}",
            hint="give a file that you may read",
            code="unreadable",
        ) from None
