"""Environments as the data of `-o json`."""

from collections.abc import Iterable

from sgpu_decl.environments.package_lists.package_diff import Difference
from sgpu_decl.model.environment import Package
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.known_environment import Base, Environment
from sgpu_decl.model.plan import PackageChange

__all__ = ["base_to_json", "difference_to_json", "environment_to_json"]


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
        "name": environment.name,
        "kind": str(environment.kind),
        "digest": environment.digest,
        "python": environment.python,
        "cuda": environment.cuda,
        "os": environment.os,
        "complete": environment.complete,
        "absent": environment.absent,
        "hashed": environment.hashed,
        "bytes": environment.size,
        "files": environment.files,
        "notes": environment.notes,
        "packages": _packages(environment.packages),
        **(_origin(base) if base is not None else {}),
    }


def difference_to_json(difference: Difference) -> dict[str, Json]:
    """The packages in the form that a plan's `environment` has."""
    changes = difference.packages
    return {
        "before": difference.before,
        "after": difference.after,
        "facts": [
            {"name": fact.name, "before": fact.before, "after": fact.after}
            for fact in difference.facts
        ],
        "added": [
            {"name": change.name, "version": change.after}
            for change in changes
            if change.before is None
        ],
        "removed": [
            {"name": change.name, "version": change.before}
            for change in changes
            if change.after is None
        ],
        "changed": [
            _changed(change) for change in changes if change.before is not None and change.after
        ],
        "partial": difference.partial,
    }


def _changed(change: PackageChange) -> dict[str, Json]:
    return {"name": change.name, "before": change.before, "after": change.after}


def _packages(packages: Iterable[Package]) -> list[Json]:
    return [{"name": package.name, "version": package.version} for package in packages]


def _origin(base: Base) -> dict[str, Json]:
    source = base.source
    return {
        "platform": base.platform,
        "source": {"title": source.title, "url": source.url, "as_of": source.as_of},
    }
