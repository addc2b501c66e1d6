"""The base environments that `env.base` may name."""

from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound
from sgpu_decl.model.backend_kinds import bases_of

if TYPE_CHECKING:
    from sgpu_decl.model.environment import Base


def base_requirements(name: str) -> tuple[str, dict[str, str]]:
    """A requirements file that reproduces a base, and what it leaves out with the reason.

    Raises:
        NotFound: there is no such base.
        SgpuError: its packages are known in part only.
    """
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
    return bases_of()


def base_named(name: str) -> "Base | None":
    """The base of that name; `None` for none."""
    from sgpu_decl.environments.package_lists.base_environments import base_named

    return base_named(name, bases())
