"""Finds the files that an entrypoint executes, by following imports.

An import counts if it always happens when its module, or a function in it, is executed: not below a
`try` with `except`, nor a condition, and not for type checkers alone. What is below
`if __name__ == "__main__"` counts in a file that is started as a script, and in no other. Nothing
is run.
"""

import ast
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sgpu_decl.diagnostics.place import Place
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
    """A file, or one function of it.

    Attributes:
        shown: the path relative to the code's root; of a function, as it was given.
        is_main: whether the file is started as a script: `__name__` is `"__main__"` there.
        function: the function of the file that is called, by its name.
        line: where that one begins, if nothing else of the file is executed but its imports.
    """

    path: Path
    shown: str
    imports: tuple[Import, ...]
    is_main: bool = False
    function: str | None = None
    line: int | None = None

    def tree(self) -> ast.Module:
        """Return the tree of what is executed; an empty one if it cannot be read any more."""
        try:
            tree = parse_source(self.path)
        except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
            return ast.Module(body=[], type_ignores=[])
        return tree if self.line is None else _part(tree, _functions_at(tree, self.line))


def sources(root: Path, entrypoint: str) -> tuple[Source, ...]:
    """The executed files in the order of imports, the entrypoint's first. A file that cannot be
    read or parsed is skipped: the ranks report it.

    Args:
        root: the folder of the code.
        entrypoint: `FILE.py`, `FILE.py:FUNCTION` or `package.module:FUNCTION`.
    """
    target, _, function = entrypoint.partition(":")
    script = target.endswith(".py")
    stem = root / (target if script else target.replace(".", "/"))
    candidates = [stem] if script else [stem.with_name(f"{stem.name}.py")]
    if not script and function:
        candidates.append(stem / "__init__.py")
    started = {Path(os.path.normpath(path)) for path in candidates}
    waiting = [root / target] if target.endswith(".py") else _files_of(root, target)
    files: dict[Path, Source] = {}
    for path in waiting:  # grows while it is walked
        path = Path(os.path.normpath(path))
        if path in files or len(files) == _MOST or not path.is_relative_to(root):
            continue
        try:
            facts = path.stat()
            is_main = path in started and not function
            imports = _imports_of(path, facts.st_mtime_ns, facts.st_size, is_main=is_main)
        except (SyntaxError, RecursionError, MemoryError, OSError, ValueError):
            continue
        files[path] = Source(
            path=path,
            shown=path.relative_to(root).as_posix(),
            imports=imports,
            is_main=is_main,
            function=(function or None) if path in started else None,
        )
        for one in imports:
            waiting += _local(one, path.parent, root)
    return tuple(files.values())


@lru_cache(maxsize=4096)
def _imports_of(path: Path, _mtime: int, _size: int, *, is_main: bool) -> tuple[Import, ...]:
    return certain_imports(parse_source(path), is_main=is_main)


def function_source(place: Place) -> Source | None:
    """Return one function, whose decorator or name is at that place; None if there is none. Other
    functions of the file are not executed by a call of it."""
    whole = Source(Path(place.file), place.file, ())
    tree = whole.tree()
    functions = _functions_at(tree, place.line)
    if not functions:
        return None
    imports = certain_imports(_part(tree, functions), is_main=False)
    name = functions[0].name
    return Source(whole.path, place.file, imports, function=name, line=place.line)


def _functions_at(tree: ast.Module, line: int) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and min([node.lineno, *(one.lineno for one in node.decorator_list)]) == line
    ]


def _part(tree: ast.Module, functions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> ast.Module:
    """Return the imports of a module and one function of it, without its decorators: the call goes
    to the function itself."""
    body: list[ast.stmt] = [
        one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)
    ]
    for function in functions[:1]:
        bare = type(function)(**{**dict(ast.iter_fields(function)), "decorator_list": []})
        body.append(ast.copy_location(bare, function))
    return ast.Module(body=body, type_ignores=[])


def certain_imports(tree: ast.Module, *, is_main: bool) -> tuple[Import, ...]:
    """The imports that happen whenever the module, or a function in it, is executed, by place."""
    return tuple(sorted(_imports(tree, is_main=is_main), key=lambda item: (item.line, item.column)))


def _imports(tree: ast.Module, *, is_main: bool) -> Iterator[Import]:
    for node in certain_statements(tree, is_main=is_main):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), 0, node.lineno, node.col_offset + 1)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.level, node.lineno, node.col_offset + 1)


def certain_statements(tree: ast.Module, *, is_main: bool) -> Iterator[ast.stmt | ast.Module]:
    """The statements that are executed whenever the module, or a function in it, is; in no order.

    Args:
        is_main: whether the module is started as a script.
    """
    waiting: list[ast.stmt | ast.Module] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.Try | ast.TryStar):
            waiting += node.finalbody if node.handlers else [*node.body, *node.finalbody]
        elif isinstance(node, ast.If):
            waiting += node.body if is_main and is_main_guard(node.test) else []
        elif isinstance(node, _WITH_A_BODY) and not _suppresses(node):
            waiting += node.body


def is_main_guard(test: ast.expr) -> bool:
    """Whether a condition holds in a script alone."""
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _suppresses(node: ast.AST) -> bool:
    """Whether an exception in the body of a statement may be caught by its `with`."""
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
