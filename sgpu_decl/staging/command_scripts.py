"""The Python files that a command starts for certain, by its words. Nothing is run."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sgpu_decl.staging.command_programs import PYTHON
from sgpu_decl.staging.sources import Source, sources
from sgpu_decl.text.shell_text import shell_tokens

__all__ = ["executed_sources", "scripts_of"]

_WITH_A_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})
# With one of these words in a text, a part of it may never be executed.
_CONDITIONS = frozenset({"if", "case", "for", "while", "until", "select", "function", "{", "||"})


def executed_sources(
    root: Path, entrypoint: str | None, command: Sequence[str] | str | None
) -> tuple[Source, ...]:
    """Return the files that an entrypoint or a command executes, in the order of imports.

    Args:
        root: the folder of the code.
    """
    started = scripts_of(command) if entrypoint is None else (entrypoint,)
    found: dict[Path, Source] = {}
    for item in (item for one in started for item in sources(root, one)):
        if item.path not in found or item.is_main:  # a script may be imported by another one, too
            found[item.path] = item
    return tuple(found.values())


def scripts_of(command: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return what a command hands to a Python, as entrypoints: `train.py`, `package.module`."""
    if command is None:
        return ()
    if not isinstance(command, str):
        return tuple(_started(command))
    try:
        words = list(shell_tokens(command))
    except ValueError:
        return ()
    return () if _CONDITIONS.intersection(words) else tuple(_started(words))


def _started(words: Sequence[str]) -> Iterator[str]:
    if words and words[0].endswith(".py"):
        yield words[0]
    for position, word in enumerate(words):
        if PYTHON.fullmatch(os.path.basename(word)):
            yield from _after_python(iter(words[position + 1 :]))


def _after_python(words: Iterator[str]) -> Iterator[str]:
    """Yield the script or the modules that a Python with these arguments starts."""
    for word in words:
        if word == "-m":
            module = next(words, "")
            if module:
                yield from (module, f"{module}.__main__")
            return
        if word in _WITH_A_VALUE:
            next(words, None)
        elif not word.startswith("-") or word == "-c":
            if word.endswith(".py"):
                yield word
            return
