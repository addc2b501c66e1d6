"""Which store a project names for its state. Commands that read the state alone need neither YAML
nor pydantic for that: a project file that has no key `state` is not parsed, and what another one
says of it is remembered."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sgpu_decl.facts.file_kind import MOST_BYTES, holds_plan
from sgpu_decl.facts.location import ROOT_FILE, Location, Opened, absolute
from sgpu_decl.model.target import Mode
from sgpu_decl.regular_files import open_regular
from sgpu_decl.storing.stores import SharedPlace

if TYPE_CHECKING:
    from sgpu_decl.config.state_reader import DeclaredState
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.facts.included_files import FileReader

__all__ = ["misplaced_state", "shared_place"]

_YAML = (".yml", ".yaml", ".json")
_OF_BLOCK = (
    "kind",
    "address",
    "schema",
    "password",
    "profile",
    "host",
    "endpoint",
    "region",
    "account",
)
_KEY = re.compile(rb"""state(?:(?<=[\s{,"']state)|(?<=^state))["']?\s*:""")
"""Begins with the word itself: files of 10 MB are searched 40 times as fast as from a choice."""


def shared_place(opened: Opened, location: Location) -> SharedPlace | None:
    """Where machines share the state of a target; None where each machine has its own.

    Raises:
        InvalidInput: the file names a store, and the block is wrong; or another file names one.
    """
    misplaced = misplaced_state(opened, location)
    file = opened.root / ROOT_FILE
    written, findings = _of_root_file(file, opened, location)
    if misplaced or findings:
        _refuse(opened.shown, misplaced)
        _refuse(os.path.relpath(file), findings)
    if not written:
        return None
    project, mode = written["project"], Mode(written["mode"])
    return SharedPlace(project=_key(project, mode), **{name: written[name] for name in _OF_BLOCK})


def _of_root_file(
    file: Path, opened: Opened, location: Location
) -> "tuple[Mapping[str, Any], tuple[Diagnostic, ...]]":
    """What the project file says of the state: the fields `_OF_BLOCK`, `project` and `mode`; empty
    if it names no store."""
    if not _may_name_one(file):
        return {}, ()
    from sgpu_decl.facts.checkout import Checkout
    from sgpu_decl.facts.included_files import FileReader
    from sgpu_decl.facts.project_file import read_bytes, variable_files
    from sgpu_decl.facts.reading_memory import ReadGit, ReadingMemory, ReadVariables

    raw, values, shown = read_bytes(file), variable_files(location), os.path.relpath(file)
    memory = ReadingMemory(
        "state",
        file,
        shown,
        raw=raw,
        target=opened.target,
        location=replace(location, sets=()),  # these are for runs
        values=values,
    )
    checkout = Checkout(opened.root)
    known = memory.recall(os.environ, lambda: checkout.facts)
    if known is not None:
        return known, ()
    environ, git, reader = ReadVariables(os.environ), ReadGit(checkout), FileReader(file, shown)
    declared, findings = _declared(raw, reader, opened.target, location, values, environ, git)
    written = {}
    if declared is not None:
        written = {name: getattr(declared.block, name) for name in _OF_BLOCK}
        written |= {"project": declared.project, "mode": str(declared.mode)}
    if not findings:
        memory.remember(written, read=environ, git=git.facts, included=reader)
    return written, findings


def _refuse(file: str, findings: "tuple[Diagnostic, ...]") -> None:
    from sgpu_decl.diagnostics.diagnostic import has_errors
    from sgpu_decl.facts.project_file import invalid_file

    if has_errors(findings):
        raise invalid_file(file, findings)


def misplaced_state(opened: Opened, location: Location) -> "tuple[Diagnostic, ...]":
    """The error of a project file which names a store, and is not the one whose store counts: all
    commands of a project have to find the same state, also those that name no file."""
    file = opened.file
    if file is None or absolute(file) == opened.root / ROOT_FILE:
        return ()
    if file.suffix not in _YAML or not _may_name_one(file) or holds_plan(file):
        return ()
    from sgpu_decl.facts.checkout import Checkout
    from sgpu_decl.facts.included_files import FileReader
    from sgpu_decl.facts.project_file import read_bytes, variable_files

    raw, values = read_bytes(file), variable_files(location)
    reader, checkout = FileReader(file, os.path.relpath(file)), Checkout(opened.root)
    declared, _ = _declared(
        raw, reader, opened.target, location, values, os.environ, lambda: checkout.facts
    )
    if declared is None:
        return ()
    from sgpu_decl.diagnostics.diagnostic import Diagnostic

    counts = os.path.relpath(opened.root / ROOT_FILE)
    return (
        Diagnostic(
            code="misplaced_state",
            summary=f"a shared state is named in `{counts}` alone, and this is another file",
            place=declared.place,
            hint=f"move `state` to `{counts}`; to keep both files, give each a folder of its own, "
            f"with the name `{ROOT_FILE}`",
        ),
    )


def _declared(
    raw: bytes,
    reader: "FileReader",
    target: str | None,
    location: Location,
    values: Sequence[tuple[bytes, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> "tuple[DeclaredState | None, tuple[Diagnostic, ...]]":
    """What the file of a reader, whose bytes are `raw`, says of the state of a target. `values` are
    the contents and names of the files that give values to its variables."""
    from sgpu_decl.config.state_reader import read_state

    return read_state(
        raw,
        reader.shown,
        target=target,
        variables=location.variables,
        environ=environ,
        git=git,
        read_included=reader,
        variable_files=values,
    )


def _may_name_one(file: Path) -> bool:
    """Whether a file can have the key, by its bytes alone."""
    try:
        with open_regular(file) as opened:
            return _KEY.search(opened.read(MOST_BYTES)) is not None
    except OSError:  # whoever needs the file says why it cannot be read
        return False


def _key(project: str, mode: Mode) -> str:
    """Developers do not meet: each of them has a state of their own."""
    if mode is not Mode.DEVELOPMENT:
        return project
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        user = str(os.getuid())
    return f"{project}@{quote(user, safe='')}"
