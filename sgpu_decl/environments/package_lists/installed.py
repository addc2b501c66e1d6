"""The packages of an interpreter, from the names of its `.dist-info` folders. No file is opened and
nothing is imported."""

import os
import platform
import sys
from collections.abc import Iterable

from sgpu_decl.environments.package_lists.packages import cuda_of, normalise
from sgpu_decl.model.environment import Environment, EnvironmentKind, Package


def installed(folders: Iterable[str]) -> tuple[Package, ...]:
    """The packages in these folders of `sys.path`, sorted by name. Of equal names the first counts,
    as in an import. A missing folder is empty."""
    versions: dict[str, str] = {}
    for folder in folders:
        here: dict[str, str] = {}
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            package = _package(name)
            if package is not None:
                here[package.name] = package.version
        for normal, version in here.items():
            versions.setdefault(normal, version)
    return tuple(Package(name, versions[name]) for name in sorted(versions))


def this_interpreter() -> Environment:
    """The environment that runs sgpu itself."""
    folders = [
        item for item in sys.path if os.path.basename(item) in ("site-packages", "dist-packages")
    ]
    packages = installed(folders)
    return Environment(
        name="this",
        kind=EnvironmentKind.INTERPRETER,
        packages=packages,
        python=platform.python_version(),
        cuda=cuda_of(packages),
        notes=(f"`{sys.executable}`",),
    )


def _package(folder: str) -> Package | None:
    """`torch-2.7.1+cu126.dist-info`, or `six-1.16.0-py3.11.egg-info` of older tools."""
    stem, kind = os.path.splitext(folder)
    if kind not in (".dist-info", ".egg-info"):
        return None
    name, _, rest = stem.partition("-")
    version = rest if kind == ".dist-info" else rest.partition("-")[0]
    return Package(normalise(name), version) if name and version else None
