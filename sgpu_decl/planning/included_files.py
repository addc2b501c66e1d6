"""The files that `include` of a root file names: found and read."""

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from sgpu_decl.code.selection import never_code
from sgpu_decl.config.project_files import Included, IncludedFile, IncludePattern
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.planning.project_text import YAML_SUFFIXES, holds_plan
from sgpu_decl.regular_files import NotRegular, is_below, open_regular
from sgpu_decl.text.file_limits import PROJECT_FILE

MOST_FILES = 2_000


@dataclass(slots=True)
class FileReader:
    """Reads what `include` of a root file names, and keeps what was read.

    Attributes:
        file: the root file; its folder is the project's.
        shown: its name in places.
    """

    file: Path
    shown: str
    files: tuple[IncludedFile, ...] = ()

    def __call__(self, patterns: Sequence[IncludePattern]) -> Included:
        folder = self.file.parent
        findings: list[Diagnostic] = []
        paths: dict[str, IncludePattern] = {}
        for pattern in patterns:
            matches = [path for path in matching_paths(folder, pattern.text) if self._other(path)]
            if not matches:
                findings.append(_nothing(pattern))
            for path in matches:
                paths.setdefault(path, pattern)
            if len(paths) > MOST_FILES:
                return Included(findings=(*findings, _too_many(pattern)))
        files: list[IncludedFile] = []
        for path, pattern in paths.items():
            read = self._read(path, pattern)
            if isinstance(read, Diagnostic):
                findings.append(read)
            else:
                files.append(read)
        self.files = tuple(files)
        return Included(files=self.files, findings=tuple(findings))

    def _other(self, path: str) -> bool:
        """A pattern may match the root file, which is read already."""
        return path != self.file.name

    def _read(self, path: str, pattern: IncludePattern) -> IncludedFile | Diagnostic:
        whole = self.file.parent / path
        refusal = self._refusal(path, whole)
        if refusal is None:
            try:
                with open_regular(whole) as opened:
                    content = opened.read(PROJECT_FILE.size + 1)
            except NotRegular as error:
                refusal = f"{error.strerror}", "name a YAML file"
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                refusal = reason, "give a file that you may read"
        if refusal is not None:
            why, hint = refusal
            return Diagnostic(
                code="include_invalid",
                summary=f"`{path}` cannot be included: {why}",
                place=pattern.place,
                hint=hint,
            )
        shown = os.path.join(os.path.dirname(self.shown), path)
        return IncludedFile(path=path, file=shown, content=content)

    def _refusal(self, path: str, whole: Path) -> tuple[str, str] | None:
        """Why a file cannot be part of the project, by its name and where it lies; and what to do.
        A link out is refused as for a root file: the project may be somebody else's, and must not
        make sgpu show other files of this user."""
        if os.path.isdir(whole):
            return "it is a folder", f"name the files in it: `{path}/*.yml`"
        if not path.endswith(YAML_SUFFIXES):
            return "its name is not that of a YAML file", "end the pattern with `.yml` or `.yaml`"
        real = os.path.realpath(whole)
        if not is_below(real, os.path.realpath(self.file.parent)):
            return f"it leads out of the project, to `{real}`", "copy the file into the project"
        if holds_plan(whole):
            return "it is a saved plan", "leave it out, or keep saved plans in another folder"
        return None


def matching_paths(folder: Path, pattern: str) -> tuple[str, ...]:
    """The files in a folder that a pattern matches, sorted; with `/` and relative to the folder.
    Names that begin with a dot match only where the pattern says the dot, and folders that never
    count (`.git`, `.venv`, `__pycache__`) are not looked into."""
    found = dict.fromkeys(_matches(os.fspath(folder), "", pattern.split("/")))
    return tuple(sorted(found))


def _matches(top: str, above: str, parts: Sequence[str]) -> Iterator[str]:
    head, rest = parts[0], parts[1:]
    if head == "**":
        while rest and rest[0] == "**":  # says the same, and each would multiply the work
            rest = rest[1:]
        if rest:
            yield from _matches(top, above, rest)
        for name, is_folder in _entries(top, above):
            if is_folder and not name.startswith("."):
                yield from _matches(top, _join(above, name), (head, *rest))
            elif not rest and not is_folder and not name.startswith("."):
                yield _join(above, name)
    elif not set(head) & set("*?["):
        path = _join(above, head)
        if not os.path.lexists(os.path.join(top, path)):
            return
        if not rest:
            yield path
        else:
            yield from _matches(top, path, rest)
    else:
        for name, is_folder in _entries(top, above):
            if not fnmatchcase(name, head) or (name.startswith(".") and not head.startswith(".")):
                continue
            if rest and is_folder:
                yield from _matches(top, _join(above, name), rest)
            elif not rest and not is_folder:
                yield _join(above, name)


def _entries(top: str, folder: str) -> Iterable[tuple[str, bool]]:
    """The names in a folder, and whether each is a folder. A link to a folder is no folder: a
    pattern would go round in circles."""
    try:
        with os.scandir(os.path.join(top, folder)) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return ()
    return [(name, folder) for name, folder in found if not never_code(name, folder=folder)]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _nothing(pattern: IncludePattern) -> Diagnostic:
    if pattern.literal:
        is_itself = os.path.normpath(pattern.text) == os.path.basename(pattern.place.file)
        return Diagnostic(
            code="include_unmatched",
            summary=f"`{pattern.text}` is this file itself"
            if is_itself
            else f"`{pattern.text}` does not exist",
            place=pattern.place,
            hint="remove it"
            if is_itself
            else "correct the path, which starts from the folder of this file, or remove it",
        )
    return Diagnostic(
        code="include_unmatched",
        severity=Severity.WARNING,
        summary=f"`{pattern.text}` matches no file",
        place=pattern.place,
        hint="correct the pattern, which starts from the folder of this file, or remove it",
    )


def _too_many(pattern: IncludePattern) -> Diagnostic:
    return Diagnostic(
        code="include_too_many",
        summary=f"`include` names more than {MOST_FILES:,} files",
        place=pattern.place,
        hint="name the folder of your run files in the pattern, such as `runs/*.yml`",
    )
