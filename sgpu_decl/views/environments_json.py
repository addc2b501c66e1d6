"""Environments as the data of `-o json`."""

from collections.abc import Iterable

from sgpu_decl.environments.known.bases import Base
from sgpu_decl.environments.known.comparing import Difference
from sgpu_decl.environments.known.environment import Environment
from sgpu_decl.model.environment import Package
from sgpu_decl.model.jsonable import Json
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
        "databricks_connect": base.databricks_connect,
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
            {"name": it.name, "before": it.before, "after": it.after} for it in difference.facts
        ],
        "added": [{"name": it.name, "version": it.after} for it in changes if it.before is None],
        "removed": [{"name": it.name, "version": it.before} for it in changes if it.after is None],
        "changed": [_changed(it) for it in changes if it.before is not None and it.after],
        "partial": difference.partial,
    }


def _changed(change: PackageChange) -> dict[str, Json]:
    return {"name": change.name, "before": change.before, "after": change.after}


def _packages(packages: Iterable[Package]) -> list[Json]:
    return [{"name": it.name, "version": it.version} for it in packages]


def _origin(base: Base) -> dict[str, Json]:
    platform, source = base.platform, base.source
    return {
        "platform": {
            "environment_version": platform.environment_version,
            "base_environment": platform.base_environment,
            "notebook": platform.notebook,
        },
        "source": {"title": source.title, "url": source.url, "as_of": source.as_of},
    }
