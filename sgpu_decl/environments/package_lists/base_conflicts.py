"""Conflicts between declared requirements and the packages of a base environment."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.markers import applies
from sgpu_decl.environments.package_lists.packages import cuda_of, normalise, version_of
from sgpu_decl.environments.package_lists.requirements import RequirementLine
from sgpu_decl.model.environment import Environment, Package

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def check_requirements(
    base: Environment, declared: Iterable[RequirementLine], values: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    """The warnings for requirements that replace a package of the base. The resolution reports
    lines that are no requirements.

    Args:
        values: the values of markers.
    """
    return tuple(finding for item in declared for finding in _findings(base, item, values))


def check_packages(
    base: Environment, packages: Iterable[Package], place: Place | None, *, severity: Severity
) -> tuple[Diagnostic, ...]:
    """The finding for packages of a snapshot or lock that need another CUDA than that of the base.

    Args:
        place: where the environment is declared.
        severity: an error where the base is what the ranks run on.
    """
    return tuple(_other_cuda(base, "the environment", cuda_of(packages), place, severity))


def installed_on(
    base: Iterable[Package], declared: Iterable[RequirementLine], values: Mapping[str, str]
) -> tuple[Package, ...]:
    """Return the packages of a base once these requirements are installed on it, as far as that is
    certain: without those that get another version, unless a requirement pins it. What the
    requirements need themselves is not known.

    Args:
        values: the values of markers.
    """
    packages = {package.name: package for package in base}
    for item in declared:
        requirement = _parsed(item.requirement, values)
        if requirement is None:
            continue
        name = normalise(requirement.name)
        before = packages.get(name)
        fits = before and requirement.specifier.contains(before.version, prereleases=True)
        if fits and requirement.url is None:
            continue  # installers leave it as it is
        packages.pop(name, None)
        pins = [one.version for one in requirement.specifier if one.operator == "=="]
        if pins and not pins[0].endswith(".*"):
            packages[name] = Package(name, pins[0])
    return tuple(packages.values())


def check_python(
    base: Environment, python: str | None, place: Place | None, *, severity: Severity
) -> tuple[Diagnostic, ...]:
    """The finding for a Python (`3.11.7`, `3.11`) of another minor version than that of the base,
    which cannot import the same packages. Parameters as in `check_packages`."""
    if python is None or base.python is None:
        return ()
    ours, theirs = python.split(".")[:2], base.python.split(".")[:2]
    if ours == theirs[: len(ours)]:
        return ()
    return (
        Diagnostic(
            code="base_python",
            severity=severity,
            summary=f"the environment is for Python {python}, and `{base.name}` has {base.python}",
            place=place,
            hint=f"use Python {'.'.join(theirs)}, or another base",
        ),
    )


def _findings(
    base: Environment, declared: RequirementLine, values: Mapping[str, str]
) -> Iterator[Diagnostic]:
    requirement = _parsed(declared.requirement, values)
    if requirement is None:
        return
    before = version_of(base.packages, normalise(requirement.name))
    if before is not None and not requirement.specifier.contains(before, prereleases=True):
        yield _replaced(base, declared, requirement, before)
    what, cuda = f"`{declared.requirement}`", _cuda_of(requirement)
    yield from _other_cuda(base, what, cuda, declared.place, Severity.WARNING)


def _parsed(text: str, values: Mapping[str, str]) -> "Requirement | None":
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
        if requirement.marker is not None and not applies(str(requirement.marker), values):
            return None
    except (InvalidRequirement, ValueError):
        return None
    return requirement


def _replaced(
    base: Environment, declared: RequirementLine, requirement: "Requirement", before: str
) -> Diagnostic:
    return Diagnostic(
        code="base_replaced",
        severity=Severity.WARNING,
        summary=f"`{declared.requirement}` replaces {requirement.name} {before} of `{base.name}`",
        place=declared.place,
        hint=f"allow {before}, or check that the other packages of the base work without it",
    )


def _other_cuda(
    base: Environment, what: str, cuda: str | None, place: Place | None, severity: Severity
) -> Iterator[Diagnostic]:
    """A finding if both are known and their major versions differ."""
    if cuda is None or base.cuda is None or _major(cuda) == _major(base.cuda):
        return
    yield Diagnostic(
        code="base_cuda",
        severity=severity,
        summary=f"{what} brings CUDA {cuda}, and `{base.name}` has CUDA {base.cuda}",
        place=place,
        hint=f"take builds for CUDA {_major(base.cuda)}, or another base",
    )


def _cuda_of(requirement: "Requirement") -> str | None:
    """The CUDA that a requirement pins: `torch==2.9.0+cu130`, `nvidia-cublas-cu13`."""
    name = normalise(requirement.name)
    if name.startswith("nvidia-") and (version := name.rpartition("-cu")[2]).isdigit():
        return version
    pins = [Package(name, item.version) for item in requirement.specifier if item.operator == "=="]
    return cuda_of(pins)


def _major(cuda: str) -> str:
    return cuda.partition(".")[0]
