"""A run that the command line alone describes: `sgpu run -- python train.py`."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sgpu_decl.rendering.run_file import name_of, run_file

__all__ = ["command_run", "name_of"]


def command_run(
    words: Sequence[str],
    *,
    name: str,
    gpus: int,
    type_: str | None,
    sets: Sequence[tuple[str, str]] = (),
) -> str:
    """The text of the run file that says the same.

    Args:
        words: a program with its arguments, or an entrypoint with its own.
        type_: the type of GPU. By default any GPU if this machine has one, else `CPU`.
        sets: dotted paths and values of more fields.

    Raises:
        Usage: an argument of a function is not of the form `name=value`, or a word is not UTF-8.
    """
    if type_ is None:
        from sgpu_decl.gpus.devices import read_devices

        type_ = "GPU" if read_devices().visible else "CPU"
    python = _other_python(words[0])
    return run_file(words, name=name, gpus=gpus, type_=type_, python=python, sets=sets)


def _other_python(word: str) -> str | None:
    """The interpreter that the word finds, if it is not the one that runs sgpu."""
    program = shutil.which(word)
    ours = Path(sys.executable).parent
    if program is None or Path(os.path.abspath(program)).parent == ours:
        return None
    return os.path.abspath(program)
