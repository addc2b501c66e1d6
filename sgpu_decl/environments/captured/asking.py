"""What an interpreter is and where it looks for packages.

This file runs in two ways: imported, for the interpreter of this process, and as text given to
another one, `python -I -c`. So it knows nothing but the standard library, of Python 3.8 too.
"""

import json
import os
import sys

__all__ = ["answer"]


def answer(user_site):
    # type: (bool) -> dict[str, object]
    """Describe this interpreter.

    `sites` are the folders that `site` puts on `sys.path`, in its order; those of users count if
    `user_site`, since `-I` leaves them out whatever a rank will see.
    """
    import importlib.util
    import site
    import sysconfig

    sites = []  # type: list[str]
    if sys.prefix != sys.base_prefix:
        sites += site.getsitepackages([sys.prefix])
    inherits = os.path.realpath(sys.base_prefix) in map(os.path.realpath, site.PREFIXES)
    if user_site and inherits and os.getuid() == os.geteuid():
        sites.append(site.getusersitepackages())
    sites += site.getsitepackages()
    paths = sysconfig.get_paths()
    sites += [paths["purelib"], paths["platlib"]]
    return {
        "python": [
            sys.implementation.name,
            ".".join(map(str, sys.version_info[:3])),
            sysconfig.get_config_var("SOABI") or "",
            f"{sys.platform}-{os.uname().machine}",
            _libc(),
        ],
        "executable": os.path.abspath(sys.executable),
        "base": os.path.abspath(getattr(sys, "_base_executable", "") or sys.executable),
        "cache_tag": sys.implementation.cache_tag or "",
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "sites": sites,
    }


def _libc():
    # type: () -> str
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")  # glibc-2.36
    except (ValueError, OSError):  # no glibc
        import platform

        return "-".join(platform.libc_ver())


if __name__ == "__main__":
    print(json.dumps(answer(sys.argv[1:] == ["user"])))  # noqa: T201
