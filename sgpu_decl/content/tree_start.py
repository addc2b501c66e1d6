"""Runs first in every interpreter of a tree, in which it is the module `_sgpu_tree`.

It puts further folders on the path, keeps installers from changing the shared tree, and has Python
keep bytecode in it.
"""

import _frozen_importlib_external as loading
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
    """Prepare this interpreter; `sites` are further package folders, relative to the tree."""
    _keep_bytecode()
    if sites:
        import site

        for folder in sites:
            site.addsitedir(os.path.join(sys.prefix, folder))
    own = os.environ.get("SGPU_SITE")
    if own and own not in sys.path:
        # Before the packages of the tree, and after the standard library.
        packages = os.path.dirname(__file__)
        sys.path.insert(sys.path.index(packages) if packages in sys.path else len(sys.path), own)
    if any("get_interpreter_info" in word for word in sys.orig_argv):
        # uv queries this interpreter. It respects EXTERNALLY-MANAGED only outside of virtual
        # environments.
        sys.base_prefix, sys.base_exec_prefix = sys.prefix, sys.exec_prefix
    if changes(_arguments_of_pip(sys.orig_argv)):
        sys.stderr.write(REFUSAL)
        sys.stderr.flush()
        os._exit(1)  # SystemExit would print a traceback of the interpreter's start


def _keep_bytecode() -> None:
    """Let Python write bytecode into the tree, also where it is told to write none."""
    loading._write_atomic = write_whole  # type: ignore[attr-defined]
    if not sys.dont_write_bytecode:
        return
    sys.dont_write_bytecode = False
    set_data, tree = loading.SourceFileLoader.set_data, sys.prefix + os.sep

    def set_in_tree(loader: object, path: str, data: bytes, **more: int) -> None:
        if path.startswith(tree):
            set_data(loader, path, data, **more)  # type: ignore[arg-type]

    loading.SourceFileLoader.set_data = set_in_tree  # type: ignore[assignment]


def write_whole(path: str, data: bytes, mode: int = 0o666) -> None:
    """Write bytecode for all ranks that follow. Python before 3.14 does not look whether the disk
    took all of it (`_write_atomic` in `importlib/_bootstrap_external.py`), and whoever imports the
    module then fails."""
    draft = f"{path}.{os.getpid()}.{id(data)}"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o666)
    try:
        try:
            if os.write(file, data) != len(data):
                raise OSError(f"`{path}` could not be written whole")
        finally:
            os.close(file)
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise


def changes(arguments: "list[str]") -> bool:
    """Whether pip would change the tree. pip ignores EXTERNALLY-MANAGED in virtual environments, so
    this check is needed."""
    if not any(word in _CHANGING for word in arguments) or arguments[0] == "help":
        return False
    if any(name in os.environ for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")):
        return False
    return not any(word.partition("=")[0] in _ELSEWHERE for word in arguments)


def _arguments_of_pip(words: "list[str]") -> "list[str]":
    """The arguments after `python -m pip` or `python …/bin/pip3`."""
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
