"""What a Python file mentions that may lead to other files: imports, texts, and opened paths.
Nothing is imported or run."""

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sgpu_decl.code.opened_files import opened_files
from sgpu_decl.code.sources import Source, parse_source
from sgpu_decl.regular_files import read_regular

_LONGEST = 10_000  # characters of a text that may hold a path
_MOST_PARTS = 50  # of a text that is put together
_COMPUTED = frozenset({
    "__import__", "find_spec", "get_class", "get_method", "import_module", "import_string",
    "iter_modules", "locate", "module_from_spec", "resolve_name", "run_module", "walk_packages",
})  # fmt: skip
# They start programs, by a text for a shell or by its words.
_STARTING = frozenset({
    "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "popen", "run",
    "system",
})  # fmt: skip
_EXECUTED = frozenset({"compile", "eval", "exec", "repeat", "timeit"})
_IMPORT_IN_TEXT = re.compile(r"\b(?:from|import)\s+([A-Za-z_][\w.]*)")
_STARTED = re.compile(r"(?:^|\s)-\w*m\s*([A-Za-z_][\w.]*)")  # of `python -m package.module`


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
    programs: the words that start a program, as far as they are literal, with their line.
    """

    imports: tuple[ImportMention, ...]
    texts: tuple[tuple[str, int], ...]
    opened: tuple[tuple[str, int], ...] = ()
    computed: tuple[tuple[str, int], ...] = ()
    programs: tuple[tuple[str, int], ...] = ()


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


def mentions_of_notebook(path: Path) -> Mentions:
    """The same of the cells of a notebook. Raises as `mentions_of`."""
    cells = json.loads(read_regular(path))["cells"]
    lines = [
        line
        for cell in cells
        if cell["cell_type"] == "code"
        for line in "".join(cell["source"]).splitlines()
    ]
    # Magics and lines for the shell are texts.
    python = (
        repr(line) + ".strip()" if line.lstrip()[:1] in tuple("%!?") else line for line in lines
    )
    return mentions_of_text("\n".join(python))


def started_modules(text: str) -> list[str]:
    """The modules that a line of a shell may start: `python -m package.module`."""
    return _STARTED.findall(text)


@lru_cache(maxsize=8192)
def _mentions(path: Path, shown: str, _mtime: int, _size: int) -> Mentions:
    opened = tuple((one.path, one.line) for one in opened_files(Source(path, shown, ())))
    return _of_tree(parse_source(path), opened)


def _of_tree(tree: ast.Module, opened: tuple[tuple[str, int], ...]) -> Mentions:
    nodes = list(ast.walk(tree))
    reads_own = any(isinstance(node, ast.Name) and node.id == "__doc__" for node in nodes)
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and not reads_own}
    # The end of a text that is put together is no text of its own.
    ends = {
        id(part)
        for node in nodes
        for part in _operands(node)
        if isinstance(part, ast.Constant) and str(part.value).startswith(".")
    }
    renamed = {
        alias.asname: alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    texts = (
        (text, node.lineno)
        for node in nodes
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)
        and id(node) not in statements  # of a docstring
        and id(node) not in ends
        and (text := "".join(_parts(node)).replace("{}{}", "{}")) not in ("", "{}")
        and len(text) <= _LONGEST
    )
    return Mentions(
        tuple(one for node in nodes for one in _imported(node, renamed)),
        tuple(dict.fromkeys(texts)),
        opened,
        tuple(one for node in nodes for one in _computed(node, renamed)),
        tuple(one for node in nodes for one in _programs(node, renamed)),
    )


def _operands(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.JoinedStr(values=values):
            return values
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [left, right]
    return []


def _parts(node: ast.expr) -> list[str]:
    """What a text is put together of, as far as it is literal."""
    waiting, parts = [node], list[str]()
    while waiting and len(parts) < _MOST_PARTS:
        match waiting.pop():
            case ast.Constant(value=str(text)):
                parts.append(text)
            case ast.Constant(value=bytes(raw)):
                parts.append(os.fsdecode(raw))
            case ast.JoinedStr(values=values):
                waiting += reversed(values)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                waiting += (right, left)
            case _:
                parts.append("{}")
    return parts


def _imported(node: ast.AST, renamed: Mapping[str, str]) -> Iterator[ImportMention]:
    match node:
        case ast.Import(names=names, lineno=line):
            yield from (ImportMention((alias.name,), 0, line) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level, lineno=line):
            start = f"{module}." if module else ""
            below = tuple(f"{start}{alias.name}" for alias in names if alias.name != "*")
            yield ImportMention((module or "", *below), level or 0, line)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *rest], lineno=line):
            if _called(function, renamed) in _COMPUTED:
                plain = name.lstrip(".")
                level = len(name) - len(plain)
                yield ImportMention((plain,), level if rest or level else 0, line)
            elif _called(function, renamed) in _EXECUTED:
                texts = (one.value for one in node.args if isinstance(one, ast.Constant))
                for module in _IMPORT_IN_TEXT.findall(" ; ".join(map(str, texts))):
                    yield ImportMention((module,), 0, line)
        case ast.List(elts=words) | ast.Tuple(elts=words):
            texts = (one.value if isinstance(one, ast.Constant) else "" for one in words)
            for module in started_modules(" ".join(map(str, texts))):
                yield ImportMention((module,), 0, node.lineno)


def _computed(node: ast.AST, renamed: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Call(func=function, args=args, lineno=line):
            called = _called(function, renamed)
            literal = bool(args) and isinstance(args[0], ast.Constant)
            if called in _COMPUTED and not literal:
                yield (_start_of(args[0]) if args else "").lstrip("."), line
            elif called in _EXECUTED and args and not literal:
                start = _start_of(args[0])
                module = re.fullmatch(r"\s*(?:from|import)\s+([\w.]*)(\s.*)?", start, re.DOTALL)
                if module is not None:
                    yield module[1], line


def _programs(node: ast.AST, renamed: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Call(func=function, args=[words, *_], lineno=line) if (
            _called(function, renamed) in _STARTING
        ):
            many = words.elts if isinstance(words, ast.List | ast.Tuple) else [words]
            yield " ".join("".join(_parts(word)) for word in many), line


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


def _called(function: ast.expr, renamed: Mapping[str, str]) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return renamed.get(function.id, function.id) if isinstance(function, ast.Name) else ""
