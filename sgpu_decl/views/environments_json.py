"""Environments as the data of `-o json`."""

from typing import cast

from sgpu_decl.environments.package_lists.package_diff import Difference
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.environment import Base, Environment
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planner.environment_changes import PackageSides


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
