"""Which packages differ between two environments."""

from collections.abc import Iterable

from sgpu_decl.model.environment import Package
from sgpu_decl.model.plan import PackageChange


def compare(before: Iterable[Package], after: Iterable[Package]) -> tuple[PackageChange, ...]:
    """Return what was added, removed or changed, by name."""
    old = {item.name: item.version for item in before}
    new = {item.name: item.version for item in after}
    return tuple(
        PackageChange(name=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
