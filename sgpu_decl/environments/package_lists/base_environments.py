"""A base environment: what a platform has installed before anything of the user's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.known_environment import Environment

__all__ = ["Base", "BaseSource", "base_named", "requirements_of", "unknown_base"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSource:
    """`as_of` is the day (`2025-10-22`) that the page described."""

    title: str
    url: str
    as_of: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """One of them, as a backend knows it.

    Attributes:
        platform: what the platform calls it, by the platform's own words for its names.
        selector: how a launch names it there.
        facts: what else is known of it, by name.
        spelled: a package's normalised name to the platform's spelling.
        left_out: the packages that no package index has, with the reason.
    """

    title: str
    platform: Mapping[str, str | None]
    selector: str
    released: str | None
    facts: Mapping[str, str | None]
    source: BaseSource
    environment: Environment
    spelled: Mapping[str, str]
    left_out: dict[str, str]

    @property
    def name(self) -> str:
        return self.environment.name


def base_named(name: str, bases: Iterable[Base]) -> Base | None:
    return next((base for base in bases if base.name == name), None)


def unknown_base(name: str, place: Place | None, bases: Iterable[Base]) -> Diagnostic:
    """Say that there is no such base, and which name is nearest."""
    names = [base.name for base in bases]
    close = nearest(name, names)
    offered = ", ".join(f"`{item}`" for item in names)
    return Diagnostic(
        code="unknown_base",
        summary=f"there is no base environment `{name}`",
        place=place,
        hint=f"did you mean `{close}`?" if close else f"use one of {offered}",
    )


def requirements_of(base: Base) -> str:
    """Every package of a base pinned, in the platform's spelling; those that no index has stand in
    comments with the reason.

    The list is whole, so that it is installed as it is (`--no-deps`): platforms ship combinations
    that a resolver would refuse.

    Raises:
        SgpuError: the base's packages are known in part, so no file would reproduce it.
    """
    environment = base.environment
    if not environment.complete:
        raise SgpuError(
            f"the packages of `{base.name}` are known in part only: no file reproduces it",
            hint=f"`sgpu env show {base.name}` says what is known; see {base.source.url}",
            code="base_incomplete",
        )
    lines = [
        f"# {base.title} ({base.name}): Python {environment.python}, CUDA {environment.cuda}",
        f"# from {base.source.url}, as of {base.source.as_of}",
        f"# uv pip install --python {environment.python} --no-deps -r FILE",
    ]
    for package in environment.packages:
        name = base.spelled[package.name]
        reason = base.left_out.get(package.name)
        if reason is None:
            lines.append(f"{name}=={package.version}")
        else:
            lines.append(f"# left out: {name} {package.version} ({reason})")
    return "\n".join(lines) + "\n"
