"""Reads from the source what a name in a module is bound to. Nothing is imported or run."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
Follow = Callable[[ast.ImportFrom, str], ast.Module | None]

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_DEEPEST = 20  # names that stand for each other
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
_LITERALS: tuple[tuple[type[ast.expr], str], ...] = (
    (ast.JoinedStr, "a text"),
    (ast.List, "a list"),
    (ast.ListComp, "a list"),
    (ast.Tuple, "a tuple"),
    (ast.Dict, "a mapping"),
    (ast.DictComp, "a mapping"),
    (ast.Set, "a set"),
    (ast.SetComp, "a set"),
    (ast.GeneratorExp, "a generator"),
)
_CONSTANTS: tuple[tuple[type[object], str], ...] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (complex, "a number"),
    (str, "a text"),
    (bytes, "bytes"),
    (type(None), "`None`"),
)


@dataclass(frozen=True, slots=True)
class Binding:
    """`function` is the one that a name stands for; `other` names another kind that is certain,
    such as "a class"; `missing`: the module binds no such name. Without any of these the source
    cannot tell."""

    function: Function | None = None
    other: str | None = None
    missing: bool = False


def binding_of(tree: ast.Module, name: str, follow: Follow, depth: int = 0) -> Binding:
    """The binding of a name once the module is imported.

    Args:
        follow: gives the tree of the module of a `from` import; `None` if unknown.
    """
    nodes = list(_bound(tree, name))
    if not nodes:
        return Binding(missing=not _binds_anything(tree, name))
    if _is_global_somewhere(tree, name) or depth > _DEEPEST:
        return Binding()
    if all(isinstance(node, Function) for node in nodes) and nodes[-1] in tree.body:
        last = nodes[-1]
        return Binding(function=last if isinstance(last, Function) else None)
    kinds = {_kind(tree, node, name, follow, depth) for node in nodes}
    return Binding(other=kinds.pop()) if len(kinds) == 1 else Binding()


def _kind(tree: ast.Module, node: ast.AST, name: str, follow: Follow, depth: int) -> str | None:
    """The kind of a name that a node binds, if it is certainly not a function."""
    match node:
        case ast.ClassDef(decorator_list=[]):
            return "a class"
        case ast.Import():
            return "a module"
        case ast.ImportFrom():
            module = follow(node, original := _original(node, name))
            return binding_of(module, original, follow, depth + 1).other if module else None
        case ast.Name(id=other):
            return binding_of(tree, other, follow, depth + 1).other
        case ast.Constant(value=value):
            return next((words for kind, words in _CONSTANTS if isinstance(value, kind)), None)
    return next((words for kind, words in _LITERALS if isinstance(node, kind)), None)


def _original(node: ast.ImportFrom, name: str) -> str:
    return next(alias.name for alias in node.names if (alias.asname or alias.name) == name)


def _bound(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    """The nodes that bind a name at the top of a module: a definition, an import, an assigned
    value, or else the statement."""
    for node in _statements(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if node.name == name:
                    yield node
            case ast.Import(names=names):
                if any((alias.asname or alias.name.partition(".")[0]) == name for alias in names):
                    yield node
            case ast.ImportFrom(names=names):
                if any((alias.asname or alias.name) == name for alias in names):
                    yield node
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name:
                if value is not None:
                    yield value
            case _:
                if any(_stores(part, name) for part in _own_parts(node)):
                    yield node


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that a module executes, including those below `if`, `try` and so on."""
    for field in _BODIES:
        for statement in getattr(node, field, ()):
            yield statement
            if not isinstance(statement, _SCOPES):
                yield from _statements(statement)


def _own_parts(statement: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without inner statements and inner scopes."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field in _BODIES and not isinstance(node, ast.expr):
                continue
            parts = value if isinstance(value, list) else [value]
            waiting += [
                part
                for part in parts
                if isinstance(part, ast.AST) and not isinstance(part, _SCOPES)
            ]


def _stores(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Name(id=stored, ctx=ast.Store() | ast.Del()):
            return stored == name
        case ast.ExceptHandler(name=stored) | ast.MatchAs(name=stored) | ast.MatchStar(name=stored):
            return stored == name
        case ast.MatchMapping(rest=stored):
            return stored == name
    return False


def _is_global_somewhere(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(tree))


def _binds_anything(tree: ast.Module, name: str) -> bool:
    """Whether a module may bind names that the source does not show: by `*`, `__getattr__`,
    `exec`."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                return True
            case ast.Call(func=ast.Name(id="exec" | "globals" | "vars" | "setattr")):
                return True
            case ast.Global(names=names) if name in names:
                return True
            case ast.FunctionDef(name="__getattr__") if node in tree.body:
                return True
    return False
