"""The findings of the last `sgpu doctor -t TARGET`, kept beside the states of a project."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.config.workspace_profile import profile_text
from sgpu_decl.doctor.profile_file import load_profile, save_profile
from sgpu_decl.errors import NotFound, SgpuError
from sgpu_decl.model.assumptions import Profile, Value, assumptions, value_of
from sgpu_decl.model.doctor_finding import VERDICTS, Finding
from sgpu_decl.storing.state_folder import make_state_folder
from sgpu_decl.system_errors import advice, error_text

_HEADING = "What `sgpu doctor` found: `sgpu dev workspace --profile FILE` behaves like this."


def profile_of(findings: Sequence[Finding]) -> Profile:
    """The measured values of assumptions."""
    values: dict[str, Value] = {}
    for finding in findings:
        id_, value = finding.assumption, finding.found
        if id_ is not None and id_ in assumptions() and value is not None:
            values[id_] = value_of(value)
    return Profile(values)


def update_profile(profile: Profile, folder: Path, target: str) -> Path:
    """Merge a profile into the one of a project, since a probe measures more than a free check.
    Returns the file. Raises SgpuError."""
    file = folder / f"{target}.yml"
    earlier = load_profile(file, str(file)) if file.exists() else Profile()
    profile = Profile({**earlier.found, **profile.found})
    _write(file, f"# {_HEADING}\n{profile_text(profile)}")
    return file


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile to a new file. Raises SgpuError: it exists, or cannot be written."""
    save_profile(profile, file, _HEADING)


def write_findings(
    kind: str, findings: Sequence[Finding], folder: Path, target: str, *, only: Sequence[str] = ()
) -> None:
    """Replace the findings of a kind in the file of the target. If `only` names runs of a probe,
    the findings of its other runs stay.

    Raises:
        SgpuError: the file cannot be read or written.
    """
    file = folder / f"{target}.json"
    record = _read(file) if file.exists() else {}
    checks = {finding.code for finding in findings}
    try:
        others = [
            entry
            for entry in record.get(kind, ())
            if only and entry["check"] not in checks and entry.get("run") not in only
        ]
    except (KeyError, TypeError, AttributeError):
        raise _unreadable(file) from None
    record[kind] = [*others, *(finding.to_json() for finding in findings)]
    _write(file, json.dumps(record, indent=1))


def read_findings(folder: Path, target: str) -> tuple[Finding, ...]:
    """The findings of the last check.

    Raises:
        NotFound: there was none.
        SgpuError: they cannot be read.
    """
    file = folder / f"{target}.json"
    if not file.exists():
        raise NotFound(
            "no target has been checked yet",
            hint="run `sgpu doctor -t TARGET` first, and `sgpu doctor report` with the same target",
        )
    try:
        return tuple(_finding(entry) for entries in _read(file).values() for entry in entries)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(file) from None


def _read(file: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _unreadable(file) from None
    if not isinstance(record, dict):
        raise _unreadable(file)
    return record


def _unreadable(file: Path) -> SgpuError:
    return SgpuError(
        f"`{file}` cannot be read", hint="delete it, and check again", code="unreadable"
    )


def _finding(entry: dict[str, Any]) -> Finding:
    return Finding(
        code=str(entry["check"]),
        severity={word: severity for severity, word in VERDICTS.items()}[entry["verdict"]],
        summary=str(entry["text"]),
        hint=entry.get("hint"),
        assumption=entry.get("assumption"),
        expected=entry.get("expected"),
        found=entry.get("found"),
        run=entry.get("run"),
    )


def _write(file: Path, text: str) -> None:
    try:
        make_state_folder(file.parent)
        write_atomic(file, text.encode())
    except OSError as error:
        raise SgpuError(
            f"`{file}` cannot be written: {error_text(error)}",
            hint=advice(error),
            code="unwritable",
        ) from None
