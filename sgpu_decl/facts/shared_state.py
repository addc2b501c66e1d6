"""Which store a project names for its state. Commands that read the state alone need neither YAML
nor pydantic for that: a project file without the key `state` is not parsed, and what a file with
it says about the state is remembered."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
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
    from sgpu_decl.facts.file_record import Reading

__all__ = ["misplaced_state", "shared_place"]

_YAML = (".yml", ".yaml", ".json")
_BLOCK = tuple(field.name for field in fields(SharedPlace) if field.name != "project")
_KEY = re.compile(rb"""state(?:(?<=[\s{,"']state)|(?<=^state))["']?\s*:""")
"""Begins with the word itself: files of 10 MB are searched 40 times as fast as from a choice."""


def shared_place(opened: Opened, location: Location) -> SharedPlace | None:
    """Where machines share the state of a target; None where each machine has its own.

    Raises:
        InvalidInput: the file names a store, and the block is wrong; or another file names one.
    """
    misplaced = misplaced_state(opened, location)
    file = opened.root / ROOT_FILE
    said, findings = _root_file_state(file, opened, location)
    if misplaced or findings:
        _refuse(opened.shown, misplaced)
        _refuse(os.path.relpath(file), findings)
    if not said:
        return None
    project = _key(said["project"], Mode(said["mode"]))
    return SharedPlace(project=project, **{name: said[name] for name in _BLOCK})


def _root_file_state(
    file: Path, opened: Opened, location: Location
) -> "tuple[Mapping[str, Any], tuple[Diagnostic, ...]]":
    """What the project file says about the state: the fields `_BLOCK` of a place, `project` and
    `mode`; empty if it names no store."""
    if not _may_name_one(file):
        return {}, ()
    from sgpu_decl.facts.checkout import Checkout
    from sgpu_decl.facts.file_record import FileRecord
    from sgpu_decl.facts.project_file import read_bytes, variable_files

    raw, values = read_bytes(file), variable_files(location)
    record = FileRecord(
        "state",
        file,
        os.path.relpath(file),
        raw=raw,
        target=opened.target,
        location=replace(location, sets=()),  # these are for runs
        values=values,
    )
    checkout = Checkout(opened.root)
    known = record.recall(os.environ, lambda: checkout.facts)
    if known is not None:
        return known, ()
    reading = record.reading(checkout)
    declared, findings = _declared(raw, reading, opened.target, location, values)
    said = {}
    if declared is not None:
        said = {name: getattr(declared.block, name) for name in _BLOCK}
        said |= {"project": declared.project, "mode": str(declared.mode)}
    if not findings:
        record.remember(said, reading)
    return said, findings


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
    from sgpu_decl.facts.file_record import Reading
    from sgpu_decl.facts.project_file import read_bytes, variable_files

    reading = Reading(file, os.path.relpath(file), Checkout(opened.root))
    declared, _ = _declared(
        read_bytes(file), reading, opened.target, location, variable_files(location)
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
    reading: "Reading",
    target: str | None,
    location: Location,
    values: Sequence[tuple[bytes, str]],
) -> "tuple[DeclaredState | None, tuple[Diagnostic, ...]]":
    """What a file, whose bytes are `raw`, says about the state of a target. `values` are the
    contents and names of the files that give values to its variables."""
    from sgpu_decl.config.state_reader import read_state

    return read_state(
        raw,
        reading.included.shown,
        target=target,
        variables=location.variables,
        environ=reading.environ,
        git=reading.git,
        read_included=reading.included,
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
