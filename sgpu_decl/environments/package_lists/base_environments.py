"""Base environments: the packages that a platform has installed."""

from collections.abc import Iterable

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.environment import Base


def base_named(name: str, bases: Iterable[Base]) -> Base | None:
    return next((base for base in bases if base.name == name), None)


def unknown_base(name: str, place: Place | None, bases: Iterable[Base]) -> Diagnostic:
    """The error for an unknown base, with the nearest name."""
    near, known = _near_and_known(name, bases)
    return Diagnostic(
        code="unknown_base",
        summary=f"there is no base environment `{name}`",
        place=place,
        hint=near or f"use one of {known}",
    )


def unlisted_base(name: str, place: Place | None, bases: Iterable[Base]) -> Diagnostic:
    """The warning for an unknown base that a platform may have all the same."""
    near, known = _near_and_known(name, bases)
    return Diagnostic(
        code="unknown_base",
        severity=Severity.WARNING,
        summary=f"sgpu knows no base environment `{name}`, nor its packages: the platform decides",
        place=place,
        hint=near or f"it knows {known}",
    )


def _near_and_known(name: str, bases: Iterable[Base]) -> tuple[str | None, str]:
    names = [base.name for base in bases]
    close = nearest(name, names)
    near = f"did you mean `{close}`?" if close else None
    return near, ", ".join(f"`{item}`" for item in names)


def requirements_of(base: Base) -> str:
    """A requirements file that reproduces a base: every package pinned, in the platform's spelling.
    Packages that no index has are comments, with the reason.

    The list is complete and installed without dependencies (`--no-deps`): platforms ship
    combinations that a resolver would refuse.

    Raises:
        SgpuError: the list of the base's packages is not complete.
    """
    environment = base.environment
    if not environment.complete:
        raise SgpuError(
            f"the list of packages of `{base.name}` is not complete: no file can reproduce it",
            hint=f"`sgpu env show {base.name}` shows the known packages; see {base.source.url}",
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
