"""Run and project files in the one format: `sgpu fmt`. This module imports the reader of YAML, so
it is imported only where files are formatted."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.code.secret_files import LOOK
from sgpu_decl.code.selection import is_sgpu_file, never_code
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.planning.location import DEFAULT_FILES
from sgpu_decl.planning.project_text import ProjectText, holds_plan, read_bytes
from sgpu_decl.regular_files import open_regular
from sgpu_decl.system_errors import advice, error_text
from sgpu_decl.text.yaml_format import formatted

_SUFFIXES = (".yml", ".yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    """A file as it is and in the format. `after` is None if it cannot be formatted; `findings` say
    why. `path` is None for text that is no file."""

    shown: str
    before: bytes
    after: str | None
    findings: tuple[Diagnostic, ...] = ()
    path: Path | None = None

    @property
    def changes(self) -> bool:
        return self.after is not None and self.after.encode() != self.before


def format_bytes(content: bytes, shown: str) -> Formatted:
    """Format the content of a file that has no name of its own, as standard input."""
    after, findings = formatted(content, shown)
    return Formatted(shown=shown, before=content, after=after, findings=findings)


def format_files(paths: Iterable[str]) -> Iterator[Formatted]:
    """Read and format files; nothing is written.

    Args:
        paths: files, and folders. Of a folder it is the run and project files in it and below it,
            and the files that these include.

    Raises:
        NotFound: a path does not exist, or a folder has no run or project file.
        InvalidInput: a file is a saved plan.
        SgpuError: a file cannot be read.
    """
    files: dict[Path, None] = {}
    for text in paths:
        path = Path(text)
        if not os.path.isdir(path):
            files[path] = None
            continue
        roots = map(ProjectText, _sgpu_files(path))
        found = dict.fromkeys(file for root in roots for file in root.files())
        if not found:
            where = "here" if text == "." else f"in `{text}`"
            raise NotFound(
                f"there is no run or project file {where} or below",
                hint="name a file: `sgpu fmt run.yaml`",
            )
        files.update(found)
    for path in files:
        if holds_plan(path):
            raise InvalidInput(
                f"`{path}` is a saved plan, not a run or project file",
                hint="leave it out: a saved plan is not written by hand",
            )
        content = read_bytes(path)
        after, findings = formatted(content, os.fspath(path))
        yield Formatted(
            shown=os.fspath(path), before=content, after=after, findings=findings, path=path
        )


def refused(files: Iterable[Formatted]) -> InvalidInput | None:
    """The error of the files that cannot be formatted, with what is wrong in each of them."""
    wrong = [file for file in files if file.after is None]
    if not wrong:
        return None
    names = f"`{wrong[0].shown}`" if len(wrong) == 1 else f"{len(wrong)} files"
    findings = tuple(finding for file in wrong for finding in file.findings)
    return InvalidInput(
        f"{names} cannot be formatted",
        hint="correct what is shown above, and format again; nothing was written there",
        diagnostics=findings,
    )


def write_formatted(file: Formatted) -> None:
    """Write the formatted text in the place of the file, which keeps its mode. A link stays one.

    Raises:
        SgpuError: it cannot be written.
    """
    assert file.path is not None and file.after is not None  # noqa: S101, PT018  what changes has both
    try:
        real = Path(os.path.realpath(file.path))
        mode = stat.S_IMODE(os.stat(real).st_mode)
        write_atomic(real, file.after.encode(), mode=mode)
    except OSError as error:
        raise SgpuError(
            f"`{file.shown}` cannot be written: {error_text(error)}",
            hint=advice(error),
            code="unwritable",
        ) from None


def _sgpu_files(folder: Path) -> Iterator[Path]:
    """The run and project files in a folder and below it, sorted; no links. Hidden folders, and
    those that are never code, are left out."""
    for top, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not _never(name)
        )
        for name in sorted(names):
            path = Path(top, name)
            if name.endswith(_SUFFIXES) and not path.is_symlink() and _is_ours(path):
                yield path


def _never(name: str) -> bool:
    return never_code(name, folder=True)


def _is_ours(path: Path) -> bool:
    if path.name in DEFAULT_FILES:
        return True
    try:
        with open_regular(path) as file:
            return is_sgpu_file(path.name, file.read(LOOK))
    except OSError:
        return False
