"""Runs first in every interpreter of a tree, where it lies beside the packages as `_sgpu_tree`.

It puts the other folders of packages on the path, and keeps installers from changing the tree.
"""

import os
import sys

REFUSAL = """\
error: externally-managed-environment

this environment was made by sgpu and is shared by all runs that use it: it cannot be changed.
declare the package in `env.dependencies` of the run: the plan shows it, and every rank has it;
or install it for this attempt alone: `pip install --target "$SGPU_SITE" PACKAGE`
"""
_CHANGING = ("install", "uninstall")
_ELSEWHERE = ("-t", "--target", "--prefix", "--root", "--dry-run", "-h", "--help")


def begin(*sites: str) -> None:
    """Prepare this interpreter; `sites` are further folders of packages, relative to the tree."""
    if sites:
        import site

        for folder in sites:
            site.addsitedir(os.path.join(sys.prefix, folder))
    own = os.environ.get("SGPU_SITE")
    if own and own not in sys.path:
        # Before the packages of the tree, and behind the standard library.
        packages = os.path.dirname(__file__)
        sys.path.insert(sys.path.index(packages) if packages in sys.path else len(sys.path), own)
    if any("get_interpreter_info" in word for word in sys.orig_argv):
        # uv asks what this is. It obeys EXTERNALLY-MANAGED, but not in what it calls a virtual
        # environment.
        sys.base_prefix, sys.base_exec_prefix = sys.prefix, sys.exec_prefix
    if changes(_arguments_of_pip(sys.orig_argv)):
        sys.stderr.write(REFUSAL)
        sys.stderr.flush()
        os._exit(1)  # SystemExit would show a traceback of the interpreter's start


def changes(arguments: "list[str]") -> bool:
    """Whether pip would change the tree. pip ignores EXTERNALLY-MANAGED in virtual environments."""
    if not any(word in _CHANGING for word in arguments) or arguments[0] == "help":
        return False
    if any(name in os.environ for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")):
        return False
    return not any(word.partition("=")[0] in _ELSEWHERE for word in arguments)


def _arguments_of_pip(words: "list[str]") -> "list[str]":
    """Return the arguments of `python -m pip` or `python …/bin/pip3`."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word.startswith("--") or word in ("-X", "-W"):
            at += 1 + (word in ("-X", "-W", "--check-hash-based-pycs"))
        elif word[-1] in "mc":
            return words[at + 2 :] if word[-1] == "m" and words[at + 1 : at + 2] == ["pip"] else []
        else:
            at += 1
    name = os.path.basename(words[at]) if at < len(words) else ""
    return words[at + 1 :] if name.rstrip("0123456789.") == "pip" else []
