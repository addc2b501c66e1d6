"""Asks an interpreter for its version, ABI and folders of packages.

This file runs in two ways: imported in this process, and as text of `python -I -c` in another
interpreter. So it uses the standard library alone, and works with Python 3.8.
"""

import json
import os
import sys


def answer(user_site, prefix=""):
    # type: (bool, str) -> dict[str, object]
    """Describe this interpreter, or a virtual environment at `prefix` that was made from it.

    `sites` are the folders that `site` puts on `sys.path`, in its order. `user_site` adds the
    folder of the user, which ranks see and `-I` hides.
    """
    import importlib.util
    import site
    import sysconfig

    sites = []  # type: list[str]
    if prefix:
        sites += _sites_of(prefix)
        inherits = _inherits(prefix)
    else:
        if sys.prefix != sys.base_prefix:
            sites += site.getsitepackages([sys.prefix])
        inherits = os.path.realpath(sys.base_prefix) in map(os.path.realpath, site.PREFIXES)
    if user_site and inherits and os.getuid() == os.geteuid():
        if os.environ.get("PYTHONUSERBASE"):  # which `-I` hides
            site.USER_BASE, site.USER_SITE = os.environ["PYTHONUSERBASE"], None
        sites.append(site.getusersitepackages())
    if inherits or not prefix:
        sites += site.getsitepackages()
    if not prefix:
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
        "base": _base(),
        "cache_tag": sys.implementation.cache_tag or "",
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "sites": sites,
    }


def _base():
    # type: () -> str
    """The interpreter outside of any virtual environment. Before Python 3.11, the virtual
    environment itself is named as that."""
    base = os.path.abspath(getattr(sys, "_base_executable", "") or sys.executable)
    if sys.prefix == sys.base_prefix or not base.startswith(sys.prefix + os.sep):
        return base
    real = os.path.realpath(base)
    if not real.startswith(os.path.realpath(sys.prefix) + os.sep):
        return real
    name = "pypy3" if hasattr(sys, "pypy_version_info") else "python{}.{}".format(*sys.version_info)
    return os.path.join(sys.base_exec_prefix, "bin", name)  # the environment has a copy


def _sites_of(prefix):
    # type: (str) -> list[str]
    """The package folders of a virtual environment, as `site` has them."""
    kind = "pypy" if hasattr(sys, "pypy_version_info") else "python"
    name = "{}{}.{}".format(kind, *sys.version_info[:2])
    if "t" in getattr(sys, "abiflags", ""):
        name += "t"
    folders = [getattr(sys, "platlibdir", "lib"), "lib"]
    return [os.path.join(prefix, folder, name, "site-packages") for folder in folders]


def _inherits(prefix):
    # type: (str) -> bool
    """Whether a virtual environment includes the system's packages, as `site` reads it."""
    inherits = True
    with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
        for line in file:
            key, equals, value = line.partition("=")
            if equals and key.strip().lower() == "include-system-site-packages":
                inherits = value.strip().lower() == "true"
    return inherits


def _libc():
    # type: () -> str
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")  # glibc-2.36
    except (ValueError, OSError):  # no glibc
        import platform

        return "-".join(platform.libc_ver())


if __name__ == "__main__":
    # On a line of its own: others may have printed a part of one.
    print("\n" + sys.argv[3] + json.dumps(answer(sys.argv[1] == "user", sys.argv[2])), flush=True)  # noqa: T201
