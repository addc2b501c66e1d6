"""Which packages the code of a run imports from outside, read from the source. Nothing is run.

An import counts where it is bound to happen when its module, or a function in it, is executed: not
below `try`, below a condition, or for type checkers alone.
"""

import ast
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.staging.parsing import parse_source

__all__ = ["code_names", "outside_imports", "source_files"]

_MOST = 500  # files that are looked at; a run that imports more of its own is rare
# Of the standard library in other versions of Python than the one that reads.
# fmt: off
_ELSEWHERE = frozenset({
    "annotationlib", "asynchat", "asyncore", "cgi", "cgitb", "compression", "crypt",
    "distutils", "imghdr", "imp", "lib2to3", "nntplib", "pipes", "smtpd", "sndhdr", "spwd",
    "telnetlib", "tomllib", "uu", "xdrlib",
})
# fmt: on
_OURS = frozenset({"sgpu_decl", "__main__"})


def code_names(paths: Collection[str]) -> frozenset[str]:
    """Every name by which a file of the code could be imported, whatever folder of it comes to be
    on `sys.path`. `paths` are relative, with `/`."""
    names: set[str] = set()
    for path in paths:
        *folders, file = path.split("/")
        names.update(folders)
        names.add(file.partition(".")[0])
    return frozenset(names)


def outside_imports(root: Path, entrypoint: str, names: Collection[str]) -> dict[str, Place]:
    """The top-level packages that a run imports and neither its code nor Python has.

    Args:
        root: the folder of the code.
        entrypoint: `FILE.py`, `FILE.py:FUNCTION` or `package.module:FUNCTION`.
        names: what `code_names` says of the code.

    Returns:
        Each package with the first place that imports it; places are relative to the root. Files
        that cannot be read or parsed are passed over: the ranks will say what is wrong with them.
    """
    found: dict[str, Place] = {}
    known = _OURS | _ELSEWHERE | sys.stdlib_module_names
    for path in source_files(root, entrypoint):
        shown = path.relative_to(root).as_posix()
        for node in _imports(path):
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            for module in _modules(node):
                top = module.partition(".")[0]
                if top not in names and top not in known:
                    found.setdefault(top, Place(shown, node.lineno, node.col_offset + 1))
    return found


def source_files(root: Path, entrypoint: str) -> tuple[Path, ...]:
    """The files of the code that an entrypoint executes as far as imports tell, in the order in
    which they are met; the entrypoint's own first."""
    target = entrypoint.partition(":")[0]
    waiting = [root / target] if target.endswith(".py") else _files_of(root, target)
    seen: dict[Path, None] = {}
    while waiting and len(seen) < _MOST:
        path = Path(os.path.normpath(waiting.pop(0)))
        if path in seen or not path.is_relative_to(root) or not path.is_file():
            continue
        seen[path] = None
        for node in _imports(path):
            waiting += _local(node, path.parent, root)
    return tuple(seen)


def _imports(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    try:
        tree = parse_source(path)
    except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.TryStar):
            waiting += node.finalbody
        elif isinstance(node, ast.If):
            waiting += node.body if _is_main(node.test) else []
        elif isinstance(node, ast.With | ast.AsyncWith):
            waiting += [] if _suppresses(node) else node.body
        elif not isinstance(node, ast.Match | ast.expr):
            waiting += ast.iter_child_nodes(node)


def _is_main(test: ast.expr) -> bool:
    return ast.unparse(test).replace('"', "'") == "__name__ == '__main__'"


def _suppresses(node: ast.With | ast.AsyncWith) -> bool:
    return any("suppress" in ast.unparse(item.context_expr) for item in node.items)


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if node.module else []


def _local(node: ast.Import | ast.ImportFrom, folder: Path, root: Path) -> list[Path]:
    """The files of the code that an import may execute: found from the root, or beside its file."""
    if isinstance(node, ast.ImportFrom) and node.level:
        base = folder
        for _ in range(node.level - 1):
            base = base.parent
        stem = f"{node.module}." if node.module else ""
        return [file for alias in node.names for file in _files_of(base, f"{stem}{alias.name}")] + (
            _files_of(base, node.module) if node.module else [base / "__init__.py"]
        )
    names = _modules(node)
    if isinstance(node, ast.ImportFrom):
        names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [file for name in names for base in (root, folder) for file in _files_of(base, name)]


def _files_of(base: Path, module: str) -> list[Path]:
    """The files that importing a module from a folder executes, the packages above it first."""
    parts = module.split(".")
    found = [base.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    return [*found, base.joinpath(*parts).with_suffix(".py")]
