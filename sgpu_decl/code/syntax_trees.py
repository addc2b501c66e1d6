"""Parses Python source, once per version of a file. Nothing is imported or run."""

import ast
import warnings
from functools import lru_cache
from pathlib import Path

from sgpu_decl.regular_files import open_regular


def parse_source(path: Path) -> ast.Module:
    """Return the tree of a file. Thousands of runs may share one entrypoint, which is parsed once.

    Raises:
        SyntaxError: it is not Python of this version.
        RecursionError, MemoryError: it is nested too deeply for the parser.
        OSError, ValueError: it cannot be read.
    """
    facts = path.stat()
    return _tree(str(path), facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _tree(path: str, _mtime: int, _size: int) -> ast.Module:
    with open_regular(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in the user's file is not ours to report
        return ast.parse(file.read(), filename=path)
