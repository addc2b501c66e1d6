"""The base environments of serverless GPU compute, as data (`bases.json`): what a platform has
installed before anything of the user's.

Each entry says where it was read and when. What the sources leave out is absent there, and unknown
here: never 0, never an older version's value.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.suggesting import nearest
from sgpu_decl.environments.known.environment import Environment, EnvironmentKind
from sgpu_decl.environments.known.packages import normalise
from sgpu_decl.model.environment import Package

__all__ = ["Base", "Platform", "Source", "all_bases", "base_named", "unknown_base"]

_DATA = Path(__file__).with_name("bases.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`as_of` is the day (`2025-10-22`) that the page described."""

    title: str
    url: str
    as_of: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What the platform calls a base: `environment_version` or `base_environment` selects it in a
    task, never both; `notebook` is its name in a notebook's panel."""

    environment_version: str | None
    base_environment: str | None
    notebook: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """`spelled` maps a package's normalised name to the platform's spelling, `left_out` those that
    no package index has to the reason."""

    title: str
    platform: Platform
    released: str | None
    databricks_connect: str | None
    source: Source
    environment: Environment
    spelled: dict[str, str]
    left_out: dict[str, str]

    @property
    def name(self) -> str:
        return self.environment.name


@cache
def all_bases() -> tuple[Base, ...]:
    """All of them, in the order of the data: by version, the default one first."""
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    sources = {name: Source(**raw) for name, raw in data["sources"].items()}
    return tuple(
        _base(name, raw, sources[raw["source"]], data["platform_only"])
        for name, raw in data["bases"].items()
    )


def base_named(name: str) -> Base | None:
    return next((base for base in all_bases() if base.name == name), None)


def unknown_base(name: str, place: Place | None) -> Diagnostic:
    """Say that there is no such base, and which name is nearest."""
    names = [base.name for base in all_bases()]
    close = nearest(name, names)
    offered = ", ".join(f"`{it}`" for it in names)
    return Diagnostic(
        code="unknown_base",
        summary=f"there is no base environment `{name}`",
        place=place,
        hint=f"did you mean `{close}`?" if close else f"use one of {offered}",
    )


def _base(name: str, raw: dict[str, Any], source: Source, platform_only: dict[str, str]) -> Base:
    spelled = {normalise(it): it for it in raw["packages"]}
    packages = sorted(Package(normalise(it), version) for it, version in raw["packages"].items())
    return Base(
        title=raw["title"],
        platform=Platform(**raw["platform"]),
        released=raw["released"],
        databricks_connect=raw["databricks_connect"],
        source=source,
        environment=Environment(
            name=name,
            kind=EnvironmentKind.BASE,
            packages=tuple(packages),
            complete=raw["complete"],
            absent=tuple(raw["absent"]),
            python=raw["python"],
            cuda=raw["cuda"],
            os=raw["os"],
            notes=tuple(raw["notes"]),
        ),
        spelled=spelled,
        left_out={it: why for it, why in platform_only.items() if it in spelled},
    )
