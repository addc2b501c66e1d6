"""Checks a declared environment against the base that it names."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.content.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.base_conflicts import (
    check_packages,
    check_python,
    check_requirements,
    installed_on,
)
from sgpu_decl.environments.package_lists.base_environments import (
    base_named,
    unknown_base,
    unlisted_base,
)
from sgpu_decl.environments.package_lists.markers import marker_values
from sgpu_decl.environments.package_lists.requirements import RequirementLine, RequirementsReader
from sgpu_decl.model.environment import Base, Environment, Package

if TYPE_CHECKING:
    from sgpu_decl.config.env import EnvironmentBlock

Locate = Callable[[str], Place | None]


def check_base(
    declared: "EnvironmentBlock",
    place: Locate,
    *,
    folder: Path,
    python: str | None,
    packages: Iterable[Package],
    severity: Severity,
    bases: Sequence[Base],
    may_exist: bool = False,
) -> tuple[Diagnostic, ...]:
    """The findings about a declared environment and its base; none where it names no base.

    Args:
        place: gives the place of a field of the block, such as `base` or `dependencies.0`.
        folder: the base of the path of a requirements file.
        python: the Python version of the environment, if known.
        packages: the packages of a snapshot or a lock, if known.
        severity: that of another Python or CUDA: an error where ranks run on the base, and info
            where they do not, as on this machine.
        bases: all bases.
        may_exist: whether a platform may have the base though it is none of these.
    """
    if declared.base is None:
        return ()
    base = base_named(declared.base, bases)
    if base is None:
        if may_exist:
            return (unlisted_base(declared.base, place("base"), bases),)
        return (unknown_base(declared.base, place("base"), bases),)
    environment, at = base.environment, place("base")
    return (
        *check_python(environment, python, place("python") or at, severity=severity),
        *check_packages(environment, packages, at, severity=severity),
        *check_requirements(
            environment, _lines(declared, place, folder), marker_values(_python_of(environment))
        ),
    )


def packages_on_base(
    declared: "EnvironmentBlock", base: Base | None, folder: Path
) -> tuple[Package, ...]:
    """Return the packages of a base, as far as they are certain, once the declared requirements are
    installed on it.

    Args:
        base: None if it is not known which one it is.
        folder: the base of the path of a requirements file.
    """
    packages = base.environment.packages if base is not None else ()
    values = marker_values(_python_of(base.environment) if base is not None else None)
    return installed_on(packages, _lines(declared, lambda _: None, folder), values)


def _python_of(base: Environment) -> Python | None:
    """The interpreter of a base, for markers; `None` if unknown."""
    if base.python is None:
        return None
    return Python("cpython", base.python, abi="", platform="linux-x86_64", libc="")


def _lines(declared: "EnvironmentBlock", place: Locate, folder: Path) -> list[RequirementLine]:
    """The requirement lines. The resolution reports a file that cannot be read."""
    reader = RequirementsReader(constraints=False)
    read: list[RequirementLine | Diagnostic] = []
    for index, text in enumerate(declared.dependencies or ()):
        read += reader.line(
            RequirementLine(text=text, place=place(f"dependencies.{index}"), folder=folder)
        )
    if declared.requirements is not None:
        path = folder / os.path.expanduser(declared.requirements)
        read += reader.file(path, os.path.relpath(path))
    return [line for line in read if isinstance(line, RequirementLine) and line.option is None]
