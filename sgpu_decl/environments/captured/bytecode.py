"""Bytecode that an environment has already: which files of it are looked at."""

import os
from typing import NamedTuple

from sgpu_decl.environments.captured.interpreter import Interpreter
from sgpu_decl.environments.captured.remembering import Memory
from sgpu_decl.environments.captured.walking import Look, Seen
from sgpu_decl.environments.captured.worker import Facts

__all__ = ["Compiled", "compiled"]

_FOLDER = "d"  # how the names in a folder are remembered


class Compiled(NamedTuple):
    """A pyc file: `facts` are those of its folder, since every interpreter replaces such files and
    writes none in place; `source` is what it was made of."""

    tree: str
    path: str
    facts: Facts
    source: Look


def compiled(interpreter: Interpreter, seen: Seen, memory: Memory) -> list[Compiled]:
    """List the pyc files of an interpreter's own version beside the sources that are taken."""
    ending = f".{interpreter.cache_tag}.pyc"
    sources = {look.tree: look for look in seen.looks if look.tree.endswith(".py")}
    found = []
    for tree, path in seen.caches:
        folder = f"{path}__pycache__"
        try:
            said = os.stat(folder)
            facts = (said.st_size, said.st_mtime_ns, said.st_ctime_ns, said.st_ino)
            known = memory.recall(_FOLDER, folder, facts)
            if known is None:
                names = sorted(name for name in os.listdir(folder) if name.endswith(ending))
                memory.remember(_FOLDER, folder, facts, "\0".join(names), len(names))
            else:
                names = known[0].split("\0") if known[1] else []
        except OSError:
            continue  # what cannot be read is compiled again
        for name in names:
            source = sources.get(f"{tree}{name[: -len(ending)]}.py")
            if source is not None:
                found.append(
                    Compiled(f"{tree}__pycache__/{name}", f"{folder}/{name}", facts, source)
                )
    return found
