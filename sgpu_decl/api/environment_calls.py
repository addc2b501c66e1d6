"""The calls about environments: those of a project, and those that are known without one."""

from typing import TYPE_CHECKING

from sgpu_decl.api.session import Session
from sgpu_decl.errors import NotFound, Usage
from sgpu_decl.facts.location import Location
from sgpu_decl.facts.opened_project import OpenedProject

if TYPE_CHECKING:
    from sgpu_decl.environments.package_lists.base_environments import Base
    from sgpu_decl.environments.package_lists.package_diff import Difference
    from sgpu_decl.model.known_environment import Environment

__all__ = [
    "EnvironmentCalls",
    "base_named",
    "base_requirements",
    "bases",
    "difference",
    "environment",
]


class EnvironmentCalls:
    """`Session.environments`."""

    def __init__(self, project: OpenedProject) -> None:
        self._project = project

    def find(self, text: str) -> "Environment":
        """The environment that `text` means: a base, `this`, a lock file, an attempt, a declared
        one, or the start of a staged one's digest.

        Raises:
            NotFound: it means none of them.
            InvalidInput: the lock file is broken.
        """
        from sgpu_decl.runs.environment_lookup import environment_named

        return environment_named(text, project=self._project)


def environment(text: str, location: Location) -> "Environment":
    """The environment that `text` means: a base, `this`, a lock file, the start of a staged
    snapshot's digest, or an attempt of the project at `location`.

    Raises:
        NotFound: it means none of them.
        InvalidInput: the lock file is broken.
        Usage: `location` names a project or a target, and `text` means nothing that is in one.
    """
    from sgpu_decl.runs.environment_lookup import in_a_project

    session = Session.open(location)
    if in_a_project(text):
        session.check_project()
        session.check_target()
    elif location.project is not None or location.target is not None:
        raise Usage(
            f"`{text}` names no environment of a project", hint="leave out `-t` and `--project`"
        )
    return session.environments.find(text)


def base_requirements(name: str) -> tuple[str, dict[str, str]]:
    """A requirements file that reproduces a base, and what it leaves out with the reason.

    Raises:
        NotFound: there is no such base.
        SgpuError: its packages are known in part only.
    """
    from sgpu_decl.backends.kinds import bases_of
    from sgpu_decl.environments.package_lists.base_environments import (
        base_named,
        requirements_of,
        unknown_base,
    )

    base = base_named(name, bases_of())
    if base is None:
        unknown = unknown_base(name, None, bases_of())
        raise NotFound(unknown.summary, hint=unknown.hint)
    return requirements_of(base), base.left_out


def bases() -> "tuple[Base, ...]":
    """The base environments that `env.base` may name."""
    from sgpu_decl.backends.kinds import bases_of

    return bases_of()


def base_named(name: str) -> "Base | None":
    """The base of that name; `None` for none."""
    from sgpu_decl.environments.package_lists.base_environments import base_named

    return base_named(name, bases())


def difference(before: "Environment", after: "Environment") -> "Difference":
    """All that is known to differ between two environments."""
    from sgpu_decl.environments.package_lists.package_diff import difference

    return difference(before, after)
