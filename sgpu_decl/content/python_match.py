"""Checks whether an environment works with an interpreter."""

from __future__ import annotations

import importlib.machinery
import os
import sys

from sgpu_decl.content.manifest import Python


def this_python() -> Python:
    """The interpreter that runs this."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]  # .cpython-311-x86_64-linux-gnu.so
    return Python(
        implementation=sys.implementation.name,
        version=".".join(map(str, sys.version_info[:3])),
        abi=suffix.split(".")[1],
        platform=f"{sys.platform}-{os.uname().machine}",
        libc=_libc(),
    )


def base_executable() -> str:
    """The base interpreter of a virtual environment, or this one, without symbolic links."""
    executable: str = getattr(sys, "_base_executable", sys.executable)
    return os.path.realpath(executable)


def mismatch(made_for: Python, here: Python) -> str:
    """The reason why an environment does not work with an interpreter; empty if it does.

    Extension modules depend on the minor version, the ABI and the platform, and need the C library
    that they were built with or a newer one.
    """
    for what, required, actual in (
        ("", made_for.implementation, here.implementation),
        ("Python ", made_for.minor, here.minor),
        ("the ABI ", made_for.abi, here.abi),
        ("", made_for.platform, here.platform),
    ):
        if required != actual:
            return f"it was made for {what}{required}, and this is {what}{actual}"
    family, _, version = made_for.libc.partition("-")
    there_family, _, there_version = here.libc.partition("-")
    if family != there_family or _numbers(version) > _numbers(there_version):
        required, actual = (libc.replace("-", " ") for libc in (made_for.libc, here.libc))
        return f"it was made for {required}, and this is {actual}"
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
