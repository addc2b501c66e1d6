"""A run that the command line alone describes: `sgpu run -- python train.py`."""

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sgpu_decl.code.code_packages import ScriptHeader, script_header
from sgpu_decl.environments.interpreters import OLDEST_OF_RANKS
from sgpu_decl.errors import Usage
from sgpu_decl.gpus.devices import read_devices
from sgpu_decl.rendering.run_file import name_of, run_file

__all__ = ["command_run", "name_of"]


def command_run(
    words: Sequence[str],
    *,
    name: str,
    gpus: int,
    type_: str | None,
    sets: Sequence[tuple[str, str]] = (),
    header: bool = True,
) -> str:
    """The text of the run file that says the same.

    Args:
        words: a program with its arguments, or an entrypoint with its own.
        type_: the type of GPU. By default any GPU if this machine has one, else `CPU`.
        sets: dotted paths and values of more fields.
        header: use what the header of a script says of its environment (PEP 723).

    Raises:
        Usage: an argument of a function is not of the form `name=value`, or a word is not UTF-8, or
            ranks cannot have the Python of the header.
    """
    if type_ is None:
        type_ = "GPU" if read_devices().visible else "CPU"
    script = words[0].partition(":")[0]
    found = script_header(Path(script)) if header and script.endswith(".py") else None
    python = _python_of(script, found) if found is not None else _other_python(words[0])
    return run_file(
        words,
        name=name,
        gpus=gpus,
        type_=type_,
        python=python,
        dependencies=found.dependencies if found is not None else (),
        sets=sets,
    )


def _python_of(script: str, header: ScriptHeader) -> str | None:
    """The version of Python that a header asks for; None where that of sgpu is such a one."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        allowed = SpecifierSet(header.python or "")
    except InvalidSpecifier:
        raise Usage(
            f"`requires-python` in the header of `{script}` is `{header.python}`",
            hint="write a version specifier, such as `>=3.12`",
        ) from None
    if allowed.contains(platform.python_version(), prereleases=True):
        return None
    major, minor = OLDEST_OF_RANKS
    newer = (f"{major}.{number}" for number in range(minor, minor + 20))
    version = next(filter(allowed.contains, newer), None)
    if version is None:
        raise Usage(
            f"`{script}` is for Python {header.python}, and ranks need Python {major}.{minor} or "
            "newer",
            hint="correct `requires-python` in its header",
        )
    return version


def _other_python(word: str) -> str | None:
    """The interpreter that the word finds, if it is not the one that runs sgpu."""
    program = shutil.which(word) if word in ("python", "python3") else None
    ours = Path(sys.executable).parent
    if program is None or Path(os.path.abspath(program)).parent == ours:
        return None
    return os.path.abspath(program)
