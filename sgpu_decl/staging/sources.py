"""Finds the files that an entrypoint executes, by following imports.

An import counts if it always happens when its module, or a function in it, is executed: not below
`try` or a condition, and not for type checkers alone. Nothing is run.
"""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sgpu_decl.staging.syntax_trees import parse_source

# At most half a second: a plan should not take longer for a warning.
_MOST = 100
_WITH_A_BODY = (
    ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
    ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Import:
    """`import module` or `from module import names`; `level` counts the dots before the module."""

    module: str
    names: tuple[str, ...]
    level: int
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Source:
    """`shown` is relative to the code's root."""

    path: Path
    shown: str
    imports: tuple[Import, ...]


def sources(root: Path, entrypoint: str) -> tuple[Source, ...]:
    """The executed files in the order of imports, the entrypoint's first. A file that cannot be
    read or parsed is skipped: the ranks report it.

    Args:
        root: the folder of the code.
        entrypoint: `FILE.py`, `FILE.py:FUNCTION` or `package.module:FUNCTION`.
    """
    target = entrypoint.partition(":")[0]
    waiting = [root / target] if target.endswith(".py") else _files_of(root, target)
    files: dict[Path, Source] = {}
    for path in waiting:  # grows while it is walked
        path = Path(os.path.normpath(path))
        if path in files or len(files) == _MOST or not path.is_relative_to(root):
            continue
        try:
            facts = path.stat()
            imports = _imports_of(path, facts.st_mtime_ns, facts.st_size)
        except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
            continue
        files[path] = Source(path, path.relative_to(root).as_posix(), imports)
        for one in imports:
            waiting += _local(one, path.parent, root)
    return tuple(files.values())


@lru_cache(maxsize=4096)
def _imports_of(path: Path, _mtime: int, _size: int) -> tuple[Import, ...]:
    return certain_imports(parse_source(path))


def certain_imports(tree: ast.Module) -> tuple[Import, ...]:
    """The imports that happen whenever the module, or a function in it, is executed, by place."""
    return tuple(sorted(_imports(tree), key=lambda item: (item.line, item.column)))


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in certain_statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), 0, node.lineno, node.col_offset + 1)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.level, node.lineno, node.col_offset + 1)


def certain_statements(tree: ast.Module) -> Iterator[ast.stmt | ast.Module]:
    """The statements that are executed whenever the module, or a function in it, is; in no
    order."""
    waiting: list[ast.stmt | ast.Module] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.Try | ast.TryStar):
            waiting += node.finalbody
        elif isinstance(node, ast.If):
            waiting += node.body if _is_main(node.test) else []
        elif isinstance(node, _WITH_A_BODY) and not _suppresses(node):
            waiting += node.body


def _is_main(test: ast.expr) -> bool:
    return ast.unparse(test) == "__name__ == '__main__'"


def _suppresses(node: ast.AST) -> bool:
    if not isinstance(node, ast.With | ast.AsyncWith):
        return False
    return any("suppress" in ast.unparse(item.context_expr) for item in node.items)


def _local(one: Import, folder: Path, root: Path) -> list[Path]:
    """The files of the code that an import may execute, from the root or beside its file."""
    if one.level:
        for _ in range(one.level - 1):
            folder = folder.parent
        stem = f"{one.module}." if one.module else ""
        modules = [f"{stem}{name}" for name in one.names]
        return [file for module in modules for file in _files_of(folder, module)]
    modules = [f"{one.module}.{name}" for name in one.names] or [one.module]
    bases = (root,) if folder == root else (root, folder)
    return [file for module in modules for base in bases for file in _files_of(base, module)]


def _files_of(base: Path, module: str) -> list[Path]:
    """The files that importing a dotted name from a folder executes, outer packages first. The last
    part may be a package, a module, or a name in the module before it."""
    files = []
    path = base
    for part in module.split("."):
        path /= part
        files += [path / "__init__.py", path.with_name(f"{part}.py")]
        if not path.is_dir():
            break
    return files
