"""The values of environment markers (PEP 508), for any interpreter."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.content.manifest import Python

if TYPE_CHECKING:
    from packaging.markers import Marker

_NAMES: Mapping[str, str] = MappingProxyType({"cpython": "CPython", "pypy": "PyPy"})
_SYSTEMS: Mapping[str, str] = MappingProxyType({"linux": "Linux", "darwin": "Darwin"})


def marker_values(python: Python | None) -> dict[str, str]:
    """The values for an interpreter; `None` is the one that runs sgpu. The kernel's version, which
    a manifest does not have, is empty."""
    from packaging.markers import default_environment

    if python is None:
        return {name: str(value) for name, value in default_environment().items()}
    system, _, machine = python.platform.partition("-")
    return {
        "implementation_name": python.implementation,
        "implementation_version": python.version,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": _NAMES.get(python.implementation, python.implementation),
        "platform_release": "",
        "platform_system": _SYSTEMS.get(system, system),
        "platform_version": "",
        "python_full_version": python.version,
        "python_version": python.minor,
        "sys_platform": system,
    }


def applies(marker: str, values: Mapping[str, str], *, groups: Collection[str] = ()) -> bool:
    """Whether a marker holds, without extras and with these dependency groups.

    Raises:
        ValueError: it is no marker.
    """
    environment: dict[str, str | AbstractSet[str]] = {
        "extra": "",
        **values,
        "extras": frozenset(),
        "dependency_groups": frozenset(groups),
    }
    return _parsed(marker).evaluate(environment, context="lock_file")


@cache
def _parsed(marker: str) -> "Marker":
    from packaging.markers import Marker

    return Marker(marker)
