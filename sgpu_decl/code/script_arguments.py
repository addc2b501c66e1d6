"""Reads from the source how a script is started: as a file with a command line, or by a function
with arguments. Nothing is imported or run.
"""

import ast
from collections.abc import Collection, Iterator

from sgpu_decl.code.argparse_options import argparse_options, uses_argparse
from sgpu_decl.code.bindings import Function
from sgpu_decl.code.literals import literal, one_of, shown_source
from sgpu_decl.model.script_argument import PLACEHOLDER, EntryArguments, ScriptArgument

_WORDS = {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign)
_DEFINITIONS = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, *_ASSIGNMENTS,
)  # fmt: skip
_READS_WORDS = "its arguments are those of its command line, such as `args: [--lr, '0.1']`"


def entry_arguments(tree: ast.Module) -> EntryArguments:
    """How a module is started, by what it does when it runs as a script.

    A module with a parser of `argparse` is a script. If it only calls one function without
    arguments, or calls nothing and defines `main` or a single function, that function is the entry,
    with its parameters. Any other module is a script whose command line is not known.
    """
    if uses_argparse(tree):
        return argparse_options(tree)
    function = _started(tree)
    if function is not None and not function.decorator_list:
        arguments = function_arguments(function)
        if arguments is not None and (arguments.arguments or not _guards(tree)):
            return arguments
    reads = any(
        isinstance(node, ast.Attribute) and node.attr == "argv" for node in ast.walk(tree)
    ) or any(function.decorator_list for function in _functions(tree))
    return EntryArguments(note=_READS_WORDS if reads else None)


def function_arguments(function: Function) -> EntryArguments | None:
    """The arguments of a function; `None` if some can only be given by position."""
    spec = function.args
    if spec.posonlyargs:
        return None
    defaults = [None] * (len(spec.args) - len(spec.defaults)) + list(spec.defaults)
    pairs = [*zip(spec.args, defaults, strict=True)]
    pairs += zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    return EntryArguments(
        function=function.name,
        arguments=tuple(_parameter(parameter, default) for parameter, default in pairs),
    )


def _parameter(parameter: ast.arg, default: ast.expr | None) -> ScriptArgument:
    kind = _kind(parameter.annotation)
    if default is None:
        return ScriptArgument(
            name=parameter.arg, kind=kind, required=True, given=True, value=PLACEHOLDER
        )
    value = literal(default)
    if value is None and (source := shown_source(default)) != "None":
        kind = "; ".join(filter(None, (kind, f"default {source}")))
    return ScriptArgument(name=parameter.arg, kind=kind, given=value is not None, value=value)


def _kind(annotation: ast.expr | None) -> str:
    """A type in words: `Literal["a", "b"]` is "one of: a, b"."""
    match annotation:
        case None:
            return ""
        case ast.Name(id=name) if name in _WORDS:
            return _WORDS[name]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=choices)):
            return one_of(shown_source(choice).strip("'") for choice in choices)
    return shown_source(annotation)


def _started(tree: ast.Module) -> Function | None:
    """The function that the module is about."""
    functions = {function.name: function for function in _functions(tree)}
    guards = _guards(tree)
    if guards:
        match guards:
            case [ast.If(body=[ast.Expr(ast.Call(ast.Name(id=name), args=[], keywords=[]))])]:
                return functions.get(name)
        return None
    if not all(isinstance(node, _DEFINITIONS) or _is_text(node) for node in tree.body):
        return None
    if any(_calls(node, functions) for node in tree.body if isinstance(node, _ASSIGNMENTS)):
        return None  # importing it does its work already
    public = [function for name, function in functions.items() if not name.startswith("_")]
    return functions.get("main") or (public[0] if len(public) == 1 else None)


def _functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in tree.body if isinstance(node, Function))


def _calls(statement: ast.stmt, functions: Collection[str]) -> bool:
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions
        for call in ast.walk(statement)
    )


def _guards(tree: ast.Module) -> list[ast.If]:
    """The `if __name__ == "__main__":` blocks."""
    return [
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and any(
            isinstance(name, ast.Name) and name.id == "__name__" for name in ast.walk(node.test)
        )
    ]


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
