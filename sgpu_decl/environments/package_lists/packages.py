"""Facts about packages: normalised name, version, CUDA version."""

import re
from collections.abc import Iterable

from sgpu_decl.model.environment import Package

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
