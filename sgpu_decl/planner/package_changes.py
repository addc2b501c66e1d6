"""Which packages differ between two environments."""

from collections.abc import Iterable
from typing import cast

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.environment import Package
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import PackageChange


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedPackage:
    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSides:
    """Changes as JSON has them: what was added, what was removed, what was changed."""

    added: tuple[_NamedPackage, ...]
    removed: tuple[_NamedPackage, ...]
    changed: tuple[PackageChange, ...]

    @classmethod
    def of(cls, packages: Iterable[PackageChange]) -> "PackageSides":
        added, removed, changed = [], [], []
        for package in packages:
            if package.before is None:
                added.append(_NamedPackage(name=package.name, version=str(package.after)))
            elif package.after is None:
                removed.append(_NamedPackage(name=package.name, version=package.before))
            else:
                changed.append(package)
        return cls(added=tuple(added), removed=tuple(removed), changed=tuple(changed))

    @property
    def changes(self) -> tuple[PackageChange, ...]:
        """By name, as `compare` gives them."""
        added = (PackageChange(name=one.name, before=None, after=one.version) for one in self.added)
        gone = (
            PackageChange(name=one.name, before=one.version, after=None) for one in self.removed
        )
        return tuple(sorted((*added, *gone, *self.changed), key=lambda change: change.name))

    def to_json(self) -> dict[str, Json]:
        return cast("dict[str, Json]", to_json(self))


def compare(before: Iterable[Package], after: Iterable[Package]) -> tuple[PackageChange, ...]:
    """Return what was added, removed or changed, by name."""
    old = {item.name: item.version for item in before}
    new = {item.name: item.version for item in after}
    return tuple(
        PackageChange(name=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
