"""Files that a run reads and that are not part of its code."""

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.opened_files import opened_files, written_files
from sgpu_decl.code.selection import Exclusion, SelectionRule
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.code.sources import Source
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.backend_kinds import is_remote

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

OUTSIDE_HINT = "set `code.root` to a folder that holds both, or give the whole path of the file"

Locate = Callable[[str], Place | None]

_MOST = 5  # findings of one run
_LARGE = 64 << 20  # bytes: what is larger is better linked than copied
_REPORTED = frozenset(
    {
        SelectionRule.GITIGNORE,
        SelectionRule.SGPUIGNORE,
        SelectionRule.EXCLUDE,
        SelectionRule.SECRET,
        SelectionRule.NEVER,
        SelectionRule.SGPU_FILE,
    }
)


def files_of_source(
    executed: Iterable[Source], config: "RunConfig", code: Snapshot
) -> tuple[Diagnostic, ...]:
    """Warn of files that executed source opens by a literal path, and that exist but are not part
    of the code. Places are relative to the root of the code."""
    findings: dict[str, Diagnostic | None] = {}
    for source in executed:
        for file in opened_files(source):
            # A folder that is the default of an option may be one that the program writes to.
            if file.path not in findings and (
                not file.default or os.path.isfile(code.root / file.path)
            ):
                place = Place(source.shown, file.line, file.column)
                by = f"`{source.shown}` opens"
                findings[file.path] = _finding(file.path, by, place, config, code)
    return _first_few(findings)


def folders_of_source(executed: Iterable[Source], code: Snapshot) -> tuple[Diagnostic, ...]:
    """Warn of folders that executed source writes into by a literal path, and that exist but are
    not part of the code, so that ranks do not find them. Places are relative to its root."""
    written = [(source, written_files(source)) for source in executed]
    made = {path for _, one in written for path in one.made}
    findings: dict[str, Diagnostic | None] = {}
    for source, one in written:
        for file in one.files:
            folder = os.path.dirname(file.path)
            if folder and folder not in findings and not _is_made(folder, made):
                place = Place(source.shown, file.line, file.column)
                findings[folder] = _absent_folder(folder, file.path, source.shown, place, code)
    return _first_few(findings)


def _is_made(folder: str, made: Collection[str]) -> bool:
    return any(one == folder or one.startswith(f"{folder}/") for one in made)


def _absent_folder(
    folder: str, path: str, shown: str, place: Place, code: Snapshot
) -> Diagnostic | None:
    whole = code.root / folder
    if folder.startswith("..") or not os.path.isdir(whole) or code.takes(folder):
        return None
    exclusion = code.exclusion(folder) or code.first_below(folder)
    if exclusion is None or exclusion.rule is SelectionRule.LINK:
        return None
    return _warning(
        "folder_left_out",
        f"`{shown}` writes `{path}`, and ranks have no folder `{folder}`: "
        f"{exclusion.about(folder)}",
        place,
        folder_hint(folder),
    )


def folder_hint(folder: str) -> str:
    """What to do where ranks lack a folder that they write into."""
    return (
        f"create it in the program: `os.makedirs({folder!r}, exist_ok=True)`; or write to the "
        "folder that `SGPU_OUTPUT_DIR` names, which is kept"
    )


def files_of_arguments(
    config: "RunConfig",
    command: Iterable[str],
    place: Locate,
    code: Snapshot,
    lacks: Callable[[str], bool],
) -> tuple[Diagnostic, ...]:
    """Warn of files that the arguments or the command of a run name, and that exist but are not
    part of the code.

    Args:
        command: the words of the command.
        lacks: whether a path is that of a file which the code lacks.
    """
    args = config.args or ()
    items = args.items() if isinstance(args, Mapping) else enumerate(args)
    words = [(f"args.{name}", value) for name, value in items]
    words += [("command", word) for word in command]
    findings: dict[str, Diagnostic | None] = {}
    for field, value in words:
        text = value.rpartition("=")[2] if isinstance(value, str) else ""
        if text and lacks(text):
            path = os.path.normpath(text)
            by = f"`{field}` names"
            findings.setdefault(path, _finding(path, by, place(field), config, code))
    return _first_few(findings)


def _first_few(findings: Mapping[str, Diagnostic | None]) -> tuple[Diagnostic, ...]:
    """The first few findings of those by path; a path without a finding has `None`."""
    return tuple(finding for finding in findings.values() if finding is not None)[:_MOST]


def words_of(command: Sequence[str] | str | None) -> Sequence[str]:
    """The words of a command; none of a text that cannot be split."""
    return _split(command) if isinstance(command, str) else command or ()


@lru_cache(maxsize=256)  # runs that differ in variables and arguments share a text
def _split(text: str) -> Sequence[str]:
    try:
        return tuple(shlex.split(text, comments=True))
    except ValueError:
        return ()


def _finding(
    path: str, by: str, at: Place | None, config: "RunConfig", code: Snapshot
) -> Diagnostic | None:
    whole = code.root / path
    if path == "." or os.path.isabs(path) or not os.path.exists(whole) or code.takes(path):
        return None  # a file of the code, or a folder that holds some
    if path.startswith(".."):
        if not os.path.isfile(whole):
            return None
        return _warning(
            "file_outside_code",
            f"{by} `{path}`, which lies outside of the code, and ranks work in a copy of the code",
            at,
            OUTSIDE_HINT,
        )
    exclusion = code.exclusion(path)
    if exclusion is None or exclusion.rule not in _REPORTED:
        return None
    summary = f"{by} `{path}`, which is not part of the code: {exclusion}"
    links = not is_remote(config.backend.kind)
    return _warning("file_left_out", summary, at, way_out(path, exclusion, whole, links=links))


def way_out(path: str, exclusion: Exclusion, whole: Path, *, links: bool) -> str:
    """The hint with the line to write, so that ranks find a file that is not part of the code."""
    include = f"`code: {{include: [{path}]}}` makes it part of the code"
    link = f"`code: {{link: [{path}]}}` links it into each attempt on this machine"
    if exclusion.rule is SelectionRule.SECRET:
        return "pass secrets by `env.secrets`"
    if exclusion.pattern is None:
        return link if links else "rename it"
    if not links:
        return include
    large = os.path.isdir(whole) or whole.stat().st_size > _LARGE
    return f"{link}; {include}" if large else f"{include}; {link}"


def _warning(code: str, summary: str, at: Place | None, hint: str) -> Diagnostic:
    return Diagnostic(code=code, severity=Severity.WARNING, summary=summary, place=at, hint=hint)
