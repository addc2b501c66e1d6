"""The differences between two environments, as far as both are known."""

from collections.abc import Collection
from dataclasses import dataclass, field

from sgpu_decl.frozen_dataclass import UNWRITTEN
from sgpu_decl.model.environment import Environment
from sgpu_decl.model.plan import PackageChange
from sgpu_decl.planner.environment_changes import compare_packages


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """A difference that is not a package: `python`, `cuda` or `os`."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """From one environment to another. `partial` names environments whose list of packages is not
    complete: packages that only the other one lists are left out."""

    before: str
    after: str
    facts: tuple[FactChange, ...]
    packages: tuple[PackageChange, ...] = field(metadata=UNWRITTEN)
    partial: tuple[str, ...] = ()


def difference(before: Environment, after: Environment) -> Difference:
    """All known differences. A fact that one side lacks is not compared."""
    packages = tuple(
        change
        for change in compare_packages(before.packages, after.packages)
        if _is_known(change.before, change.name, before)
        and _is_known(change.after, change.name, after)
    )
    return Difference(
        before=before.name,
        after=after.name,
        facts=tuple(_facts(before, after)),
        packages=packages,
        partial=tuple(dict.fromkeys(item.name for item in (before, after) if not item.complete)),
    )


def _is_known(version: str | None, name: str, environment: Environment) -> bool:
    return version is not None or environment.complete or name in environment.absent


def _facts(before: Environment, after: Environment) -> Collection[FactChange]:
    pairs = (
        ("python", before.python, after.python),
        ("cuda", before.cuda, after.cuda),
        ("os", before.os, after.os),
    )
    return [
        FactChange(name=name, before=old, after=new)
        for name, old, new in pairs
        if old is not None and new is not None and _differ(old, new)
    ]


def _differ(old: str, new: str) -> bool:
    """Compare the parts that both have: `13` and `13.0` are equal."""
    shared = min(old.count("."), new.count(".")) + 1
    return old.split(".")[:shared] != new.split(".")[:shared]
