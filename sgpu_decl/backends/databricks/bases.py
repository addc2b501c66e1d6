"""The base environments of serverless GPU compute, as data (`bases.json`).

Each entry says where it was read and when. What the sources leave out is absent there, and unknown
here: never 0, never an older version's value.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.model.environment import Base, BaseSource, Environment, EnvironmentKind, Package

_NUMBERED = re.compile(r"(gpu|ai)-([1-9][0-9]{0,2})")
_DEFINED = re.compile(r"workspace-base-environments/[\w.-]+|/(Workspace|Volumes)/.+\.ya?ml")
_DATA = Path(__file__).with_name("bases.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabricksBase(Base):
    """`environment_version` or `base_environment` selects it in a task, never both; `notebook` is
    its name in a notebook's panel."""

    @property
    def environment_version(self) -> str | None:
        return self.platform["environment_version"]

    @property
    def base_environment(self) -> str | None:
        return self.platform["base_environment"]

    @property
    def for_tasks(self) -> bool:
        """Whether a task can choose it; some are for notebooks alone."""
        return self.environment_version is not None or self.base_environment is not None

    @property
    def version(self) -> int | None:
        """The number of the version, whatever the platform calls it; None where it is not known, or
        tasks cannot choose the base."""
        number = self.environment_version or (self.base_environment or "").rpartition("_v")[2]
        return int(number) if number.isdigit() else None


@cache
def all_bases() -> tuple[DatabricksBase, ...]:
    """All of them, in the order of the data: by version, the default one first."""
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    sources = {name: BaseSource(**raw) for name, raw in data["sources"].items()}
    return tuple(
        _base(name, raw, sources[raw["source"]], data["platform_only"])
        for name, raw in data["bases"].items()
    )


def base_named(name: str) -> DatabricksBase | None:
    """The base of that name: one of `all_bases`, or one that the platform may have beside them, of
    which nothing is known: a later version, or one that a workspace defines."""
    return next((base for base in all_bases() if base.name == name), None) or _unlisted(name)


def _unlisted(name: str) -> DatabricksBase | None:
    version: str | None = None
    selected: str | None = None
    if found := _NUMBERED.fullmatch(name):
        if found[1] == "gpu":
            version = found[2]
        else:
            selected = f"workspace-base-environments/databricks_ai_v{found[2]}"
    elif _DEFINED.fullmatch(name):
        selected = name
    else:
        return None
    raw = {
        "title": name, "released": None, "databricks_connect": None, "packages": {},
        "complete": False, "absent": (), "python": None, "cuda": None, "os": None, "notes": (),
        "platform": {
            "environment_version": version, "base_environment": selected, "notebook": None
        },
    }  # fmt: skip
    return _base(name, raw, BaseSource(title=name, url="", as_of="", note=""), {})


def _base(
    name: str, raw: dict[str, Any], source: BaseSource, platform_only: dict[str, str]
) -> DatabricksBase:
    spelled = {normalise(item): item for item in raw["packages"]}
    packages = sorted(
        Package(normalise(item), version) for item, version in raw["packages"].items()
    )
    return DatabricksBase(
        title=raw["title"],
        platform=raw["platform"],
        selector=_selector(raw["platform"]),
        released=raw["released"],
        facts={"databricks_connect": raw["databricks_connect"]},
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
        left_out={item: why for item, why in platform_only.items() if item in spelled},
    )


def _selector(platform: Mapping[str, str | None]) -> str:
    if platform["environment_version"] is not None:
        return f'environment_version "{platform["environment_version"]}"'
    if platform["base_environment"] is not None:
        return f"base_environment {platform['base_environment']}"
    return f"`{platform['notebook']}` in notebooks"
