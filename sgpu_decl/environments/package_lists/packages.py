"""Packages: names, versions, and those that an interpreter has, from its `.dist-info` folders."""

import os
import platform
import re
import sys
from collections.abc import Iterable

from sgpu_decl.model.environment import Environment, EnvironmentKind, Package

_SEPARATORS = re.compile(r"[-_.]+")
_CUDA_LOCAL = re.compile(r"cu(\d{2})(\d)")
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


def normalise(name: str) -> str:
    """`Foo.Bar_baz` is `foo-bar-baz` (PEP 503)."""
    return _SEPARATORS.sub("-", name).lower()


def version_of(packages: Iterable[Package], name: str) -> str | None:
    """The version of the package of that normalised name."""
    return next((package.version for package in packages if package.name == name), None)


def cuda_of(packages: Iterable[Package]) -> str | None:
    """The CUDA version of packages, `12.6`, or `None`: that of NVIDIA's runtime package, or else
    that in torch's local version."""
    cuda = None
    for package in packages:
        if _RUNTIME.fullmatch(package.name):
            return ".".join(package.version.split(".")[:2])
        if package.name == "torch" and (
            match := _CUDA_LOCAL.search(package.version.partition("+")[2])
        ):
            cuda = f"{match[1]}.{match[2]}"
    return cuda


def installed(folders: Iterable[str]) -> tuple[Package, ...]:
    """The packages in these folders of `sys.path`, sorted by name. Of equal names the first counts,
    as in an import. A missing folder is empty. No file is opened and nothing is imported."""
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
