"""What a Python file mentions that may lead to other files: imports, texts, and opened paths.
Nothing is imported or run."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sgpu_decl.staging.opened_files import opened_files
from sgpu_decl.staging.sources import Source
from sgpu_decl.staging.syntax_trees import parse_source

__all__ = ["ImportMention", "Mentions", "mentions_of", "mentions_of_text"]

_LONGEST = 10_000  # characters of a text that may hold a path
_MOST_PARTS = 50  # of a text that is put together
_COMPUTED = frozenset(
    {"import_module", "__import__", "run_module", "iter_modules", "walk_packages"}
)


@dataclass(frozen=True, slots=True)
class ImportMention:
    """`level` counts the dots before the module. `modules` holds the module itself, and each name
    that is imported from it, which may be a module too."""

    modules: tuple[str, ...]
    level: int
    line: int


@dataclass(frozen=True, slots=True)
class Mentions:
    """Attributes:
    imports: every import, wherever it stands: one that happens in a branch may happen.
    texts: the literal texts, with the line of each; those that are put together have `{}` where a
        part is computed.
    opened: the paths that are opened, relative to the root of the code, with the line of each.
    computed: the start of each module name that is imported and computed, with its line.
    """

    imports: tuple[ImportMention, ...]
    texts: tuple[tuple[str, int], ...]
    opened: tuple[tuple[str, int], ...] = ()
    computed: tuple[tuple[str, int], ...] = ()


def mentions_of(path: Path, shown: str) -> Mentions:
    """Read a file.

    Raises:
        SyntaxError, RecursionError, MemoryError, OSError, ValueError: it cannot be parsed.
    """
    facts = path.stat()
    return _mentions(path, shown, facts.st_mtime_ns, facts.st_size)


def mentions_of_text(text: str) -> Mentions:
    """The same of a program that a command holds. Raises as `ast.parse`."""
    return _of_tree(ast.parse(text), ())


@lru_cache(maxsize=8192)
def _mentions(path: Path, shown: str, _mtime: int, _size: int) -> Mentions:
    opened = tuple((one.path, one.line) for one in opened_files(Source(path, shown, ())))
    return _of_tree(parse_source(path), opened)


def _of_tree(tree: ast.Module, opened: tuple[tuple[str, int], ...]) -> Mentions:
    nodes = list(ast.walk(tree))
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (
        (text, node.lineno)
        for node in nodes
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)
        and id(node) not in statements  # of a docstring
        and (text := "".join(_parts(node)).replace("{}{}", "{}")) not in ("", "{}")
        and len(text) <= _LONGEST
    )
    return Mentions(
        tuple(one for node in nodes for one in _imported(node)),
        tuple(dict.fromkeys(texts)),
        opened,
        tuple(one for node in nodes for one in _computed(node)),
    )


def _parts(node: ast.expr) -> list[str]:
    """What a text is put together of, as far as it is literal."""
    waiting, parts = [node], list[str]()
    while waiting and len(parts) < _MOST_PARTS:
        match waiting.pop():
            case ast.Constant(value=str(text)):
                parts.append(text)
            case ast.JoinedStr(values=values):
                waiting += reversed(values)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                waiting += (right, left)
            case _:
                parts.append("{}")
    return parts


def _imported(node: ast.AST) -> Iterator[ImportMention]:
    match node:
        case ast.Import(names=names, lineno=line):
            yield from (ImportMention((alias.name,), 0, line) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level, lineno=line):
            start = f"{module}." if module else ""
            below = tuple(f"{start}{alias.name}" for alias in names if alias.name != "*")
            yield ImportMention((module or "", *below), level or 0, line)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *rest], lineno=line):
            if _called(function) in _COMPUTED:
                plain = name.lstrip(".")
                level = len(name) - len(plain)
                yield ImportMention((plain,), level if rest or level else 0, line)


def _computed(node: ast.AST) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Call(func=function, args=args, lineno=line) if _called(function) in _COMPUTED:
            if not args:
                yield "", line
            elif not (isinstance(args[0], ast.Constant) and isinstance(args[0].value, str)):
                yield _start_of(args[0]), line


def _start_of(name: ast.expr) -> str:
    """The literal start of a computed text."""
    match name:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[first, *_]) | ast.BinOp(left=first, op=ast.Add() | ast.Mod()):
            return _start_of(first).partition("%")[0]
        case ast.Call(func=ast.Attribute(value=text, attr="format")):
            return _start_of(text).partition("{")[0]
    return ""


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
