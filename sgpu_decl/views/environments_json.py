"""Environments as the data of `-o json`."""

from collections.abc import Iterable

from sgpu_decl.environments.package_lists.package_diff import Difference
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.environment import Package
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.known_environment import Base, Environment
from sgpu_decl.planning.plan_json import packages_to_json

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
    return {
        "before": difference.before,
        "after": difference.after,
        "facts": to_json(difference.facts),
        **packages_to_json(difference.packages),
        "partial": difference.partial,
    }


def _packages(packages: Iterable[Package]) -> list[Json]:
    return [{"name": package.name, "version": package.version} for package in packages]


def _origin(base: Base) -> dict[str, Json]:
    source = base.source
    return {
        "platform": base.platform,
        "source": {"title": source.title, "url": source.url, "as_of": source.as_of},
    }
