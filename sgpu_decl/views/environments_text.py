"""Environments as text and JSON: the bases, one environment whole, what differs between two."""

from collections.abc import Iterator, Sequence
from typing import cast

from sgpu_decl.environments.package_lists.package_diff import Difference
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.environment import Base, Environment
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planner.environment_changes import PackageSides
from sgpu_decl.views.plan_words import package_words, packages_amount
from sgpu_decl.views.terminal import Colour, count, escape, paint, size

_COLOURS = {"+": Colour.GREEN, "~": Colour.YELLOW, "-": Colour.RED}
_FACTS = {"python": "Python", "cuda": "CUDA", "os": "system"}


def bases_table(bases: Sequence[Base]) -> str:
    """One line per base; `-` is what the sources do not say."""
    rows = [("BASE", "PYTHON", "CUDA", "SYSTEM", "PACKAGES", "AS OF", "ON THE PLATFORM")]
    for base in bases:
        item = base.environment
        known = "" if item.complete else " known"
        rows.append(
            (
                item.name,
                item.python or "-",
                item.cuda or "-",
                item.os or "-",
                f"{len(item.packages):,}{known}",
                base.source.as_of,
                base.selector,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    )


def environment_text(environment: Environment, base: Base | None = None) -> str:
    """What is known of an environment, then each package with its version."""
    packages = [
        f"  {escape(package.name)} {escape(package.version)}" for package in environment.packages
    ]
    return "\n".join([*_head(environment, base), *packages])


def difference_text(difference: Difference, *, colour: bool) -> str:
    """`~ torch 2.7.1 -> 2.13.0`, `+ peft 0.17.1`, `- six 1.17.0`, then `+1 ~1 -1 packages`."""
    lines = [
        f"~ {_FACTS[fact.name]} {escape(fact.before)} -> {escape(fact.after)}"
        for fact in difference.facts
    ]
    lines += [package_words(package) for package in difference.packages]
    painted = [paint(line, _COLOURS[line[0]], on=colour) for line in lines]
    partial = [
        f"(the packages of `{escape(name)}` are known in part: others may differ)"
        for name in difference.partial
    ]
    return "\n".join([*painted, *partial, packages_amount(difference.packages)])


def _head(environment: Environment, base: Base | None) -> Iterator[str]:
    yield f"{escape(environment.name)}: {_what(environment, base)}"
    facts = [
        f"{_FACTS[name]} {escape(value)}"
        for name, value in (
            ("python", environment.python),
            ("cuda", environment.cuda),
            ("os", environment.os),
        )
        if value is not None
    ]
    if facts:
        yield f"  {', '.join(facts)}"
    if base is not None:
        yield f"  on the platform: {base.selector}"
        yield f"  from {base.source.url}, as of {base.source.as_of}"
    if environment.digest is not None:
        yield f"  {escape(environment.digest)}"
    for note in environment.notes:
        yield f"  {escape(note)}"
    if environment.hashed is not None:
        yield (
            "  every package has a hash" if environment.hashed else "  not every package has a hash"
        )
    if environment.absent:
        yield f"  without {', '.join(environment.absent)}"
    known = "" if environment.complete else " known"
    yield f"  {count(len(environment.packages), 'package')}{known}{_amount(environment)}"


def _what(environment: Environment, base: Base | None) -> str:
    return base.title if base is not None else str(environment.kind)


def _amount(environment: Environment) -> str:
    if environment.files is None or environment.size is None:
        return ""
    return f", {count(environment.files, 'file')}, {size(environment.size)}"


def base_to_json(base: Base) -> dict[str, Json]:
    """One line of `sgpu env bases`; `packages` counts."""
    environment = base.environment
    return {
        "name": base.name,
        "title": base.title,
        "python": environment.python,
        "cuda": environment.cuda,
        "os": environment.os,
        **base.facts,
        "released": base.released,
        "complete": environment.complete,
        "packages": len(environment.packages),
        **_origin(base),
    }


def environment_to_json(environment: Environment, base: Base | None = None) -> dict[str, Json]:
    return {
        **cast("dict[str, Json]", to_json(environment)),
        "packages": [package._asdict() for package in environment.packages],
        **(_origin(base) if base is not None else {}),
    }


def difference_to_json(difference: Difference) -> dict[str, Json]:
    """The packages in the form that a plan's `environment` has."""
    return {
        **cast("dict[str, Json]", to_json(difference)),
        **PackageSides.of(difference.packages).to_json(),
    }


def _origin(base: Base) -> dict[str, Json]:
    return {"platform": base.platform, "source": to_json(base.source)}
