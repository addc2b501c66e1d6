"""The bytecode files that an environment already has."""

import os
from typing import NamedTuple

from sgpu_decl.environments.captured.file_walk import WalkEntry, WalkResult
from sgpu_decl.environments.captured.file_worker import FileStat
from sgpu_decl.environments.captured.interpreter_facts import InterpreterFacts
from sgpu_decl.environments.captured.stat_cache import StatCache

_FOLDER = "d"  # the kind of cache entry for the names in a folder


class BytecodeFile(NamedTuple):
    """A pyc file and its source. `facts` are those of its folder: interpreters replace such files
    and never write them in place."""

    tree: str
    path: str
    facts: FileStat
    source: WalkEntry


def bytecode_files(
    interpreter: InterpreterFacts, walk: WalkResult, cache: StatCache
) -> list[BytecodeFile]:
    """List the pyc files of the interpreter's own version beside captured sources."""
    ending = f".{interpreter.cache_tag}.pyc"
    sources = {look.tree: look for look in walk.entries if look.tree.endswith(".py")}
    files = []
    for tree, folder, _, _, facts in walk.caches:
        names_there = cache.recall(_FOLDER, folder, facts)
        if names_there is None:
            try:
                names = sorted(name for name in os.listdir(folder) if name.endswith(ending))
            except OSError:  # the missing bytecode is compiled again
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
