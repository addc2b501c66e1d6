"""The text of a run or project file, and what it says. Commands that look at a state ask it for a
target or a store without pydantic, and import nothing of YAML where no file is."""

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.model.target import misnamed
from sgpu_decl.regular_files import NotRegular, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable

    from sgpu_decl.config.file_reader import Overrides
    from sgpu_decl.config.loaded import Loaded
    from sgpu_decl.config.project_files import ParsedFiles
    from sgpu_decl.config.state_reader import DeclaredState
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.planning.included_files import FileReader
    from sgpu_decl.text.yaml_nodes import Document


YAML_SUFFIXES = (".yaml", ".yml", ".json")
"""How the names of run and project files end."""


def holds_plan(path: Path) -> bool:
    """Whether a file is a plan and not JSON of another kind, which a run file may be too."""
    try:
        return is_saved_plan(path) and b'"format_version"' in read_regular(path)
    except OSError:
        return False


def is_saved_plan(path: Path) -> bool:
    """Whether a file is (or was meant to be) a saved plan, by its first characters.

    A run file may begin with a brace too. So where the name is that of one, the file counts as a
    plan if it begins with the first key of ours, or has the format's number (`-o json` of a plan).
    """
    try:
        with open_regular(path) as file:
            head = file.read(64).lstrip()
            if not head.startswith(b"{") or path.suffix not in YAML_SUFFIXES:
                return head.startswith(b"{")
            return b'"applyable"' in head or b'"format_version"' in head + file.read()
    except OSError:
        return False


class ProjectText:
    """A run or project file and the files that it includes, as they were when they were asked for
    first. A file with the same bytes is parsed once in a process, whoever asks.

    Args:
        file: its path. The files that it includes lie in its folder.
        shown: its name in places; by default its path.
    """

    def __init__(self, file: Path, shown: str | None = None) -> None:
        self.file = file
        self.shown = os.fspath(file) if shown is None else shown

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file; see `read_bytes` for the errors."""
        return read_bytes(self.file)

    @cached_property
    def parsed(self) -> "ParsedFiles":
        """The file joined with those that it includes, as they are written.

        Raises:
            NotFound: the file is not there.
            SgpuError: it cannot be read.
        """
        from sgpu_decl.config.project_files import read_files

        return read_files(self.content, self.shown, self._reader)

    def values(self, overrides: "Overrides") -> "tuple[Loaded | None, tuple[Diagnostic, ...]]":
        """What the files say with the overrides of a command; see `file_reader.read`."""
        from sgpu_decl.config.file_reader import read

        return read(self.parsed, overrides)

    def targets(self) -> tuple[str, ...]:
        """The names that stand under `targets`. Runs may hold errors.

        Raises:
            InvalidInput: the files cannot be parsed, so their targets are not known.
        """
        from sgpu_decl.text.yaml_nodes import Mapping

        files, findings = self.parsed
        if files is None:
            raise invalid_file(self.shown, findings)
        block = files.root.entries.get("targets")
        return tuple(block.entries) if isinstance(block, Mapping) else ()

    def default_target(self) -> str | None:
        """The target that a project file names for commands that choose none: `default: true`;
        `None` if no target has it, or if the file cannot be read.

        Raises:
            InvalidInput: the file is no YAML, so nobody knows.
        """
        document, findings = self._alone("default")
        if findings:
            raise invalid_file(self.shown, findings)
        if document is None:
            return None
        from sgpu_decl.config.target_chain import defaults_among
        from sgpu_decl.text.file_limits import is_project
        from sgpu_decl.text.yaml_nodes import Mapping

        targets = document.root.entries.get("targets")
        if not isinstance(targets, Mapping) or not is_project(document.root, self.shown):
            return None
        names = defaults_among(targets.entries)
        return next((name for name in names if misnamed(name) is None), None)

    def state(
        self, overrides: "Callable[[], Overrides]"
    ) -> "tuple[DeclaredState | None, tuple[Diagnostic, ...]]":
        """Where the file says that the state of a target lies, and what is wrong with that.

        Args:
            overrides: asked where the file names a store.
        """
        document, findings = self._alone("state")
        if document is None:
            return None, findings
        from sgpu_decl.config.target_chain import has_key

        if not has_key(document.root, "state"):
            return None, ()
        from sgpu_decl.config.state_reader import read_state

        files, findings = self.parsed
        return (None, findings) if files is None else read_state(files, overrides())

    def declared_runs(self) -> tuple[str, ...]:
        """The names of runs as they are written; none if the file is not there, or cannot be
        read."""
        from sgpu_decl.text.yaml_nodes import Mapping, Scalar

        try:
            files, _ = self.parsed
        except SgpuError:
            return ()
        if files is None:
            return ()
        entries = files.root.entries
        if files.kind == "project":
            runs = entries.get("runs")
            return tuple(runs.entries) if isinstance(runs, Mapping) else ()
        name = entries.get("name")
        return (name.text,) if isinstance(name, Scalar) else ()

    def files(self) -> tuple[Path, ...]:
        """The file, and those that it includes; one that cannot be read includes none."""
        try:
            _ = self.parsed
        except SgpuError:
            return (self.file,)
        return (self.file, *(self.file.parent / item.path for item in self._reader.files))

    @cached_property
    def _reader(self) -> "FileReader":
        from sgpu_decl.planning.included_files import FileReader

        return FileReader(self.file, self.shown)

    def _alone(self, key: str) -> "tuple[Document | None, tuple[Diagnostic, ...]]":
        """The file without those that it includes; or else why it is no YAML, if it may say what
        `key` is. Neither if it is not there, cannot be read, or is a saved plan: whoever needs it
        says so."""
        try:
            content = b"" if holds_plan(self.file) else self.content
        except SgpuError:
            return None, ()
        if not content:
            return None, ()
        from sgpu_decl.config.other_tool_configs import read_document

        document, findings = read_document(content, self.shown)
        return document, findings if document is None and key.encode() in content else ()


def invalid_file(shown: str, findings: "tuple[Diagnostic, ...]") -> InvalidInput:
    """The error of a file that is wrong, or that only the options of the command do not fit. It
    names another file if all mistakes stand there: one that is included, or a `--var-file`."""
    from sgpu_decl.diagnostics.diagnostic import Severity

    wrong = [one for one in findings if one.severity is Severity.ERROR]
    if all(map(_is_about_option, wrong)):
        message = f"the options of this command do not fit `{shown}`"
    else:
        places = {one.place for one in wrong if not _is_about_option(one)}
        files = {shown if place is None else place.file for place in places}
        message = f"`{files.pop() if len(files) == 1 else shown}` is not valid"
    return InvalidInput(message, diagnostics=findings)


def _is_about_option(finding: "Diagnostic") -> bool:
    if finding.code == "unknown_target":  # its place is where targets are declared
        return True
    return finding.place is not None and finding.place.is_option


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
            from sgpu_decl.text.file_limits import PROJECT_FILE  # with YAML

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
