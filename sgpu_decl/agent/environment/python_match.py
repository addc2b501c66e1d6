"""The facts of an interpreter on which an environment depends, and whether another one fits."""

from __future__ import annotations

import importlib.machinery
import os
import sys

from sgpu_decl.agent.environment.manifest import Python

__all__ = ["base_executable", "mismatch", "this_python"]


def this_python() -> Python:
    """Return the interpreter that runs this."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]  # .cpython-311-x86_64-linux-gnu.so
    return Python(
        implementation=sys.implementation.name,
        version=".".join(map(str, sys.version_info[:3])),
        abi=suffix.split(".")[1],
        platform=f"{sys.platform}-{os.uname().machine}",
        libc=_libc(),
    )


def base_executable() -> str:
    """Return the path of the interpreter, or of the base of its virtual environment."""
    executable: str = getattr(sys, "_base_executable", sys.executable)
    return os.path.realpath(executable)


def mismatch(original: Python, other: Python) -> str:
    """Say why an environment made for one interpreter does not work with another; empty if it does.

    Extension modules need the same minor version, ABI and platform, and the C library that they
    were built against or a newer one.
    """
    for what, old, new in (
        ("", original.implementation, other.implementation),
        ("Python ", original.minor, other.minor),
        ("the ABI ", original.abi, other.abi),
        ("", original.platform, other.platform),
    ):
        if old != new:
            return f"it was made for {what}{old}, and this is {what}{new}"
    family, _, version = original.libc.partition("-")
    other_family, _, other_version = other.libc.partition("-")
    if family != other_family or _numbers(version) > _numbers(other_version):
        old, new = (libc.replace("-", " ") for libc in (original.libc, other.libc))
        return f"it was made for {old}, and this is {new}"
    return ""


def _libc() -> str:
    """`glibc-2.36`"""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")
    except (ValueError, OSError):  # no glibc
        import platform

        return "-".join(platform.libc_ver())


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
