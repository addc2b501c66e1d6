"""The pins of a lock file, and the errors about them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.environment import Package


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackages:
    """`kind` is `pylock`, `uv` or `requirements`; `packages` are those that apply to the
    interpreter, by name; `hashed`: each has a hash; `python` is the required version (`>=3.11`);
    `misfit` is another reason why the file is not for that interpreter."""

    kind: str
    packages: tuple[Package, ...]
    hashed: bool
    python: str | None = None
    misfit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One package, and the place of its pin."""

    package: Package
    hashed: bool
    place: Place


def settle(
    kind: str, pins: Iterable[Pin], *, python: str | None = None
) -> tuple[LockedPackages, tuple[Diagnostic, ...]]:
    """Collect the pins of a file; two different pins of one package are an error."""
    first: dict[str, Pin] = {}
    for pin in (all_pins := list(pins)):
        first.setdefault(pin.package.name, pin)
    locked = LockedPackages(
        kind=kind,
        packages=tuple(first[name].package for name in sorted(first)),
        hashed=all(pin.hashed for pin in all_pins) and bool(all_pins),
        python=python,
    )
    return locked, tuple(_contradictions(all_pins, first))


def invalid(summary: str, place: Place, hint: str | None = None) -> Diagnostic:
    """The error for an entry that breaks the format."""
    return Diagnostic(
        code="lock_invalid",
        summary=summary,
        place=place,
        hint=hint or "make the lock file again with the tool that wrote it",
    )


def _contradictions(pins: Iterable[Pin], first: dict[str, Pin]) -> Iterator[Diagnostic]:
    for pin in pins:
        other = first[pin.package.name]
        if pin.package.version != other.package.version:
            yield Diagnostic(
                code="lock_contradicts",
                summary=f"`{pin.package.name}` is pinned to {pin.package.version} and to "
                f"{other.package.version}",
                place=pin.place,
                hint="keep one of the two",
                related=(Related(place=other.place, note="the other pin"),),
            )
