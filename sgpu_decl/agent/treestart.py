"""Runs first in every interpreter of a tree, where it lies beside the packages as `_sgpu_tree`.

It puts the further folders on the path, and keeps installers from writing to what all runs share.
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
_ELSEWHERE = ("-t", "--target", "--prefix", "--root", "--dry-run", "--break-system-packages", "-h")


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
    words = sys.orig_argv
    if any("pip" in word or "get_interpreter_info" in word for word in words[:8]):
        _guard(words)


def _guard(words: "list[str]") -> None:
    if any("get_interpreter_info" in word for word in words):
        # uv asks what this is, and takes EXTERNALLY-MANAGED seriously outside of virtual
        # environments alone.
        sys.base_prefix, sys.base_exec_prefix = sys.prefix, sys.exec_prefix
    arguments = _arguments_of_pip(words)
    if not arguments or not any(word in _CHANGING for word in arguments):
        return
    if any(word.startswith(_ELSEWHERE) for word in arguments):
        return
    sys.stderr.write(REFUSAL)
    sys.stderr.flush()
    os._exit(1)


def _arguments_of_pip(words: "list[str]") -> "list[str]":
    for at, word in enumerate(words[1:], 1):
        if word == "-m" and words[at + 1 : at + 2] == ["pip"]:
            return words[at + 2 :]
        if not word.startswith("-"):
            return words[at + 1 :] if os.path.basename(word).startswith("pip") else []
    return []
