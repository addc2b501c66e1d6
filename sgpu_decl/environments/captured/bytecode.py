"""Bytecode that an environment has already: which files of it are looked at."""

import os
from typing import NamedTuple

from sgpu_decl.environments.captured.file_walk import WalkEntry, WalkResult
from sgpu_decl.environments.captured.file_worker import FileStat
from sgpu_decl.environments.captured.interpreter_facts import InterpreterFacts
from sgpu_decl.environments.captured.stat_cache import StatCache

__all__ = ["BytecodeFile", "bytecode_files"]

_FOLDER = "d"  # how the names in a folder are remembered


class BytecodeFile(NamedTuple):
    """A pyc file: `facts` are those of its folder, since every interpreter replaces such files and
    writes none in place; `source` is what it was made of."""

    tree: str
    path: str
    facts: FileStat
    source: WalkEntry


def bytecode_files(
    interpreter: InterpreterFacts, walk: WalkResult, cache: StatCache
) -> list[BytecodeFile]:
    """List the pyc files of an interpreter's own version beside the sources that are taken."""
    ending = f".{interpreter.cache_tag}.pyc"
    sources = {look.tree: look for look in walk.entries if look.tree.endswith(".py")}
    files = []
    for tree, folder, _, _, facts in walk.caches:
        names_there = cache.recall(_FOLDER, folder, facts)
        if names_there is None:
            try:
                names = sorted(name for name in os.listdir(folder) if name.endswith(ending))
            except OSError:  # what cannot be read is compiled again
                cache.doubt()
                continue
            cache.remember(_FOLDER, folder, facts, "\0".join(names), len(names))
        else:
            names = names_there[0].split("\0") if names_there[1] else []
        beside = tree.removesuffix("__pycache__/")
        for name in names:
            source = sources.get(f"{beside}{name[: -len(ending)]}.py")
            if source is not None:
                files.append(BytecodeFile(tree + name, folder + name, facts, source))
    return files
