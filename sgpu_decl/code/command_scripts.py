"""The Python files that entrypoints and commands execute for certain, by their words. Nothing is
run."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from sgpu_decl.code.command_programs import PYTHON
from sgpu_decl.code.sources import Source, sources
from sgpu_decl.text.shell_text import shell_tokens

_WITH_A_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})
# With one of these words in a text, a part of it may never be executed.
_CONDITIONS = frozenset({"if", "case", "for", "while", "until", "select", "function", "{", "||"})


class ExecutedCode:
    """Which files of the code below a folder are executed. Thousands of runs start the same few
    scripts, and each of these is followed once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[Source, ...]] = {}

    def of(self, started: Iterable[str]) -> tuple[Source, ...]:
        """The files that entrypoints, scripts and modules execute, in the order of imports."""
        found: dict[Path, Source] = {}
        for item in (item for one in started for item in self._sources(one)):
            if item.path not in found or item.is_main:  # another script may import it, too
                found[item.path] = item
        return tuple(found.values())

    def _sources(self, started: str) -> tuple[Source, ...]:
        if started not in self._known:
            self._known[started] = sources(self._root, started)
        return self._known[started]


def scripts_of(command: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return what a command hands to a Python, as entrypoints: `train.py`, `package.module`."""
    if command is None:
        return ()
    return _scripts_in(command) if isinstance(command, str) else tuple(_started(command))


@lru_cache(maxsize=256)  # runs that differ in variables and arguments share a text
def _scripts_in(text: str) -> tuple[str, ...]:
    try:
        words = list(shell_tokens(text))
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
