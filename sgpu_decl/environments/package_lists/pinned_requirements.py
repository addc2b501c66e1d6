"""Reads requirements files in which everything is pinned."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, in_order
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.lock_file import LockedPackages, Pin, invalid, settle
from sgpu_decl.environments.package_lists.markers import applies
from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.environments.package_lists.requirements import RequirementLine, RequirementsReader
from sgpu_decl.model.environment import Package

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_STRONG = re.compile(r"(?:sha256|sha384|sha512):[0-9a-f]{64,}")
# Options that do not change what pip installs, only how or from where.
_HARMLESS = re.compile(
    r"-[cif].*|--(?:constraint|index-url|extra-index-url|no-index|find-links|no-binary|only-binary"
    r"|prefer-binary|require-hashes|pre|trusted-host|use-feature)"
)
# A lock has its own codes for errors that a list of requirements has too.
_CODES = {"bad_requirement": "lock_invalid", "requirements_missing": "lock_unreadable"}


def read_pinned(
    path: Path, shown: str, values: Mapping[str, str]
) -> tuple[LockedPackages | None, tuple[Diagnostic, ...]]:
    """Read a file in which everything is pinned, with included files.

    Args:
        shown: the user's name for it, for places.
        values: the values of markers.

    Returns:
        The packages, or `None` if a line is wrong, and a finding for each wrong line.
    """
    pins: list[Pin] = []
    findings: list[Diagnostic] = []
    for line in RequirementsReader(constraints=False).file(path, shown):
        pin = (
            _pin(line, line.place or Place(shown, 1, 1), values)
            if isinstance(line, RequirementLine)
            else replace(line, code=_CODES.get(line.code, line.code))
        )
        if isinstance(pin, Diagnostic):
            findings.append(pin)
        elif pin is not None:
            pins.append(pin)
    locked, more = settle("requirements", pins)
    findings += more
    return (None if findings else locked), in_order(findings)


def _pin(line: RequirementLine, at: Place, values: Mapping[str, str]) -> Pin | Diagnostic | None:
    """The pin of a line, `None` where it does not apply, or the error."""
    from packaging.requirements import InvalidRequirement, Requirement

    if line.option is not None:
        if _HARMLESS.fullmatch(line.option):
            return None
        what = "an editable install" if line.option in ("-e", "--editable") else f"`{line.option}`"
        return invalid(f"{what} pins nothing", at, "name the package with its version")

    try:
        requirement = Requirement(line.requirement)
        marker = requirement.marker
        if marker is not None and not applies(str(marker), values):
            return None
    except (InvalidRequirement, ValueError):
        return invalid(f"`{line.requirement}` is no requirement", at, "write it as `name==1.2.3`")
    version = _pinned(requirement)
    if version is None:
        return Diagnostic(
            code="lock_unpinned",
            summary=f"`{requirement.name}` is not pinned to one version",
            place=at,
            hint=f"write `{requirement.name}==…`; `uv pip compile` pins a whole file",
        )
    package = Package(normalise(requirement.name), version)
    return Pin(
        package=package, hashed=any(_STRONG.fullmatch(item) for item in line.hashes), place=at
    )


def _pinned(requirement: "Requirement") -> str | None:
    """The one version that a requirement allows; for a URL the version in the wheel's name."""
    if requirement.url is not None:
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        name = requirement.url.partition("#")[0].rpartition("/")[2].replace("%2B", "+")
        try:
            return str(parse_wheel_filename(name)[1])
        except (InvalidWheelFilename, ValueError):
            return None
    if len(requirement.specifier) != 1:
        return None
    (one,) = requirement.specifier
    exact = one.operator in ("==", "===") and not one.version.endswith(".*")
    return one.version if exact else None
