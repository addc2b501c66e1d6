"""Finds the files that source code opens for reading by a literal path. Nothing is imported or run.

A path counts as literal if it is built from literals: `os.path.join("data", "x")`,
`Path("data") / "x"`, f-strings, and names that are bound once in the file.
"""

import ast
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from sgpu_decl.code.sources import Source, parse_source

_OPEN = frozenset({
    "open", "load", "listdir", "scandir", "glob", "iglob", "walk", "File", "ZipFile", "copytree",
    "fromfile", "memmap", "loadtxt", "genfromtxt", "open_memmap", "imread", "ImageFolder",
    "load_from_disk", "load_file", "safe_open", "from_file", "from_pretrained", "loadmat",
})  # fmt: skip
_READ = ("read_", "load_")
_METHODS = frozenset({"open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "walk"})
_PATHS = frozenset({"Path", "PurePath", "PosixPath"})
# They write to their first argument, to their second one, and to the path that they are called on.
_WRITE_FIRST = frozenset({
    "to_csv", "to_excel", "to_feather", "to_json", "to_parquet", "to_pickle", "savefig", "savetxt",
    "savez", "savez_compressed", "imsave", "imwrite", "FileHandler", "RotatingFileHandler",
})  # fmt: skip
_WRITE_SECOND = frozenset({"dump", "save", "save_file"})
_WRITE_METHODS = frozenset({"write_text", "write_bytes", "touch"})
_MAKE = frozenset({"makedirs", "mkdir"})
_SAME = frozenset({"abspath", "realpath", "normpath", "expanduser", "fspath", "str", "resolve",
                   "absolute", *_PATHS})  # fmt: skip
_DEEPEST = 20  # names that stand for each other


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """`path` is relative to the root of the code, with `/`; it may begin with `..`. `default`: it
    is the default of an option of the program."""

    path: str
    line: int
    column: int
    default: bool = False


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files that a source file writes to by literal paths, and the folders that it creates."""

    files: tuple[OpenedFile, ...] = ()
    made: tuple[str, ...] = ()


def written_files(source: Source) -> WrittenFiles:
    """What a source file writes to by literal paths; nothing if it cannot be read."""
    try:
        tree = parse_source(source.path)
    except (SyntaxError, OSError, ValueError, RecursionError, MemoryError):
        return WrittenFiles()
    literals = _Literals(tree, source.shown)
    files, made = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for value in _written(node):
                path = literals.text(value)
                if path and not os.path.isabs(path):
                    whole = os.path.normpath(path)
                    files.append(OpenedFile(whole, value.lineno, value.col_offset + 1))
            if _name(node.func) in _MAKE:
                on = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                texts = (literals.text(value) for value in (*node.args[:1], *on))
                made += [os.path.normpath(text) for text in texts if text]
    return WrittenFiles(tuple(files), tuple(made))


def _written(call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call that may be paths of files to write."""
    name = _name(call.func)
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name == "open" and on is not None and _is_writing(call.args[:1]):
        yield on
    if name == "open" and _writes(call):
        yield from call.args[:1]
    if name in _WRITE_FIRST:
        yield from call.args[:1]
    if name in _WRITE_SECOND:
        yield from call.args[:2]
    if name in _WRITE_METHODS and on is not None:
        yield on


def opened_files(source: Source) -> tuple[OpenedFile, ...]:
    """The files that a source file opens by literal paths; none if it cannot be read."""
    try:
        facts = source.path.stat()
        return _opened_in(source.path, source.shown, facts.st_mtime_ns, facts.st_size)
    except (SyntaxError, OSError, ValueError, RecursionError, MemoryError):
        return ()  # it changed since its imports were read


@lru_cache(maxsize=4096)
def _opened_in(path: Path, shown: str, _mtime: int, _size: int) -> tuple[OpenedFile, ...]:
    return tuple(_opened_by(parse_source(path), shown))


def _opened_by(tree: ast.Module, shown: str) -> Iterator[OpenedFile]:
    literals = _Literals(tree, shown)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for value, default in _opened(node):
                path = literals.text(value)
                if path and not os.path.isabs(path):
                    whole = os.path.normpath(path)
                    yield OpenedFile(whole, value.lineno, value.col_offset + 1, default)


def _opened(call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """The arguments of a call that may be paths of files to read."""
    name = _name(call.func)
    if _writes(call):
        return
    if isinstance(call.func, ast.Attribute) and name in _METHODS:
        if name == "open" and _is_writing(call.args[:1]):
            return
        yield call.func.value, False
    if name in ("listdir", "scandir") and not call.args and not call.keywords:
        yield ast.copy_location(ast.Constant(value="."), call), False
    if name == "make_archive":
        yield from ((value, False) for value in call.args[2:3])
        yield from ((one.value, False) for one in call.keywords if one.arg == "root_dir")
    if name in _OPEN or name.startswith(_READ):
        for value in (*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg)):
            yield value, False
    elif name == "add_argument":
        yield from ((keyword.value, True) for keyword in call.keywords if keyword.arg == "default")


def _writes(call: ast.Call) -> bool:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    return _is_writing(named or call.args[1:2])


def _is_writing(modes: list[ast.expr]) -> bool:
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else ""
    return isinstance(mode, str) and 0 < len(mode) < 4 and bool(set(mode) & set("wax"))


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


class _Literals:
    def __init__(self, tree: ast.Module, shown: str) -> None:
        self._shown = shown
        self._tree = tree

    @cached_property
    def _bound(self) -> Mapping[str, ast.expr]:
        return _bound_once(self._tree)  # most files open nothing

    def text(self, node: ast.expr | None, depth: int = 0) -> str | None:
        """The text of an expression, where that is certain."""
        if node is None or depth > _DEEPEST:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id="__file__"):
                return self._shown
            case ast.Name(id=name):
                return self.text(self._bound.get(name), depth + 1)
            case ast.JoinedStr(values=values):
                return self._joined(values, "", depth)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.text(value, depth + 1)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([left, right], "", depth)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined([left, right], "/", depth)
            case ast.Attribute(value=value, attr="parent"):
                return self._parent(value, depth)
            case ast.Subscript(
                value=ast.Attribute(value=value, attr="parents"),
                slice=ast.Constant(value=int(above)),
            ) if 0 <= above < _DEEPEST:
                path = self.text(value, depth + 1)
                for _ in range(above + 1 if path is not None else 0):
                    path = os.path.dirname(os.path.normpath(path or "")) or "."
                return path
            case ast.Call(func=function, args=args, keywords=[]):
                return self._called(function, args, depth)
        return None

    def _called(self, function: ast.expr, args: list[ast.expr], depth: int) -> str | None:
        name = _name(function)
        on = [function.value] if isinstance(function, ast.Attribute) else []
        if name == "dirname" and len(args) == 1:
            return self._parent(args[0], depth)
        if name == "joinpath":
            return self._joined([*on, *args], "/", depth)
        if name == "join" and on and _name(on[0]) == "path":
            return self._joined(args, "/", depth)
        if not args and (name in ("getcwd", "cwd") or name in _PATHS):
            return "."
        if name in _SAME and len(args) < 2:
            return self.text(next(iter(args or on), None), depth + 1)
        if name in _PATHS:
            return self._joined(args, "/", depth)
        return None

    def _joined(self, parts: list[ast.expr], between: str, depth: int) -> str | None:
        texts = [self.text(part, depth + 1) for part in parts]
        literals = [text for text in texts if text is not None]
        if len(literals) != len(parts):
            return None
        return between.join(literals) if between == "" else os.path.join(*literals)

    def _parent(self, node: ast.expr, depth: int) -> str | None:
        text = self.text(node, depth + 1)
        return None if text is None else os.path.dirname(os.path.normpath(text)) or "."


def _bound_once(tree: ast.Module) -> Mapping[str, ast.expr]:
    """The names that the file binds once, including defaults of parameters."""
    times: Counter[str] = Counter()
    values: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                times[name] += 1
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
            case ast.arguments():
                times.update(_parameters(node))
                values.update(_defaults(node))
    return {name: value for name, value in values.items() if times[name] == 1}


def _parameters(spec: ast.arguments) -> list[str]:
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    return [parameter.arg for parameter in every if parameter is not None]


def _defaults(spec: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    positional = [*spec.posonlyargs, *spec.args]
    first = len(positional) - len(spec.defaults)
    for parameter, value in zip(positional[first:], spec.defaults, strict=True):
        yield parameter.arg, value
    for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if default is not None:
            yield parameter.arg, default
