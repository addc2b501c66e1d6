"""Reads from the source how a script is started: as a file with a command line, by `argparse`, or
by a function with arguments; and the literal values that a run file can hold. Nothing is imported
or run.

Of `argparse`, an argument is `given` only if its words on the command line certainly do the same as
its default: https://docs.python.org/3/library/argparse.html#the-add-argument-method
"""

import ast
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sgpu_decl.code.bindings import Function
from sgpu_decl.diagnostics.tokens import find_token
from sgpu_decl.model.jsonable import LARGEST_NUMBER, Json
from sgpu_decl.model.script_argument import PLACEHOLDER, EntryArguments, ScriptArgument

_LONGEST = 50  # characters of a default in a comment
_MOST = 8  # choices in a comment


def literal(node: ast.expr) -> Json:
    """The value of a literal of JSON; `None` for any other expression too."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if _is_json(value) else None


def is_plain_text(text: str) -> bool:
    """Whether a run file may hold a text as it is: it is no secret, and refers to nothing, as
    `${var.x}`, `$HOME` and `~/data` do."""
    refers = "$" in text or text.startswith("~/")
    return text.isprintable() and not refers and find_token(text) is None


def shown_source(node: ast.expr) -> str:
    """An expression for a comment of one line."""
    text = ast.unparse(node)
    if not is_plain_text(text):
        return "in the source"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def one_of(choices: Iterable[str]) -> str:
    """The choices of an argument, for a comment."""
    names = list(choices)
    more = ", …" if len(names) > _MOST else ""
    return f"one of: {', '.join(names[:_MOST])}{more}"


def _is_json(value: object) -> bool:
    match value:
        case None | bool():
            return True
        case int():
            return abs(value) < LARGEST_NUMBER
        case float():
            return math.isfinite(value)
        case str():
            return is_plain_text(value)
        case list():
            return all(map(_is_json, value))
        case dict():
            return all(isinstance(key, str) and _is_json(key) for key in value) and all(
                map(_is_json, value.values())
            )
    return False


_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "int": ("integer", (int,)),
    "float": ("number", (int, float)),
    "str": ("text", (str,)),
    "Path": ("path", (str,)),
}
"""The types whose text is known: in words, and which defaults are the same when they are typed."""

_TELL_NOTHING = frozenset({"help", "version"})
_ON_OR_OFF = frozenset({"store_true", "store_false", "store_const", "append_const", "count"})
_CHANGES_WORDS = frozenset({"prefix_chars", "fromfile_prefix_chars"})
_NONE = ast.Constant(None)
_SUBCOMMANDS = "its command line has subcommands: write the words of the one to run"


def uses_argparse(tree: ast.Module) -> bool:
    """Whether a module makes a parser of `argparse`."""
    return any(_parsers(tree))


def argparse_options(tree: ast.Module) -> EntryArguments:
    """The command line of a module that makes a parser: positional arguments first."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    methods = {_name(call.func) for call in calls}
    if methods & {"add_subparsers", "add_parser"}:
        return EntryArguments(note=_SUBCOMMANDS)
    parsers = list(_parsers(tree))
    sure = len(parsers) == 1 and "set_defaults" not in methods
    sure = sure and not any(word.arg in _CHANGES_WORDS for word in parsers[0].keywords)
    exclusive = _exclusive_groups(tree)
    arguments: dict[str, ScriptArgument] = {}
    for call in calls:
        if _name(call.func) != "add_argument" or not isinstance(call.func, ast.Attribute):
            continue
        group = call.func.value
        alone = _source(group) in exclusive or _makes_exclusive_group(group)
        argument = _argument(call, sure=sure and not alone)
        if argument is not None:
            arguments.setdefault(argument.name, argument)
    ordered = sorted(arguments.values(), key=lambda argument: argument.name.startswith("-"))
    return EntryArguments(arguments=tuple(ordered))


def _parsers(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == "ArgumentParser":
            yield node


def _exclusive_groups(tree: ast.Module) -> set[str]:
    """The names of groups of which a command line may give one argument only."""
    return {
        _source(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _makes_exclusive_group(node.value)
        for target in node.targets
    }


def _makes_exclusive_group(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == "add_mutually_exclusive_group"


def _argument(call: ast.Call, *, sure: bool) -> ScriptArgument | None:
    """The argument that a call of `add_argument` adds; `None` if the source does not name it."""
    names = [_text(name) for name in call.args]
    settings = {word.arg: word.value for word in call.keywords if word.arg is not None}
    known = [name for name in names if name]
    if not known or len(known) != len(names) or not all(map(is_plain_text, known)):
        return None
    name = max(known, key=lambda one: (one.startswith("--"), len(one)))
    action = _text(settings.get("action")) or ("store" if "action" not in settings else "?")
    if action in _TELL_NOTHING:
        return None
    sure = sure and len(settings) == len(call.keywords)  # no `**settings`
    required = "required" in settings and literal(settings["required"]) is True
    if action in _ON_OR_OFF or _name(settings.get("action")) == "BooleanOptionalAction":
        kind = "counts how often it is given" if action == "count" else "on or off"
        return ScriptArgument(name=name, kind=kind, required=required, given=required and sure,
                              words=(name,))  # fmt: skip
    positional = not name.startswith("-")
    nargs = literal(settings["nargs"]) or "unknown" if "nargs" in settings else None
    required = required or (positional and (nargs in (None, "+") or _is_count(nargs)))
    words, fits = _words(name, nargs, settings, positional=positional)
    given = sure and action == "store" and (fits and not positional)
    if required and not given:
        count = nargs if _is_count(nargs) and isinstance(nargs, int) else 1
        words, given = _spelled(name, [PLACEHOLDER] * count, nargs, positional=positional), sure
    return ScriptArgument(
        name=name, kind=_kind_in_words(settings, default=not given), required=required, given=given,
        words=words,
    )  # fmt: skip


def _words(
    name: str, nargs: Json, settings: Mapping[str, ast.expr], *, positional: bool
) -> tuple[tuple[str, ...], bool]:
    """The words that give the default, and whether they certainly do."""
    default = literal(settings["default"]) if "default" in settings else None
    values = default if isinstance(default, list) else [default]
    many = nargs in ("*", "+") or _is_count(nargs)
    types = _TYPES.get(_type_name(settings), ("", ()))[1]
    choices = _choices(settings["choices"]) if "choices" in settings else values
    fits = (
        default is not None
        and many == isinstance(default, list)
        and (nargs in (None, "?") or many)
        and bool(values)
        and (not _is_count(nargs) or nargs == len(values))
        and choices is not None
        and all(
            isinstance(value, types)
            and not isinstance(value, bool)
            and value in choices
            and is_plain_text(str(value))
            for value in values
        )
        and not (many and any(str(value).startswith("-") for value in values))
    )
    if not fits:
        return _spelled(name, ["..."], nargs, positional=positional), False
    return _spelled(name, list(map(str, values)), nargs, positional=positional), True


def _spelled(name: str, values: Sequence[str], nargs: Json, *, positional: bool) -> tuple[str, ...]:
    if positional:
        return tuple(values)
    return (f"{name}={values[0]}",) if nargs in (None, "?") else (name, *values)


def _kind_in_words(settings: Mapping[str, ast.expr], *, default: bool) -> str:
    choices = _choices(settings["choices"]) if "choices" in settings else None
    if choices:
        words = [one_of(map(str, choices))]
    else:
        words = [_TYPES.get(_type_name(settings), ("", ()))[0]]
    if default and (source := shown_source(settings.get("default", _NONE))) != "None":
        words.append(f"default {source}")
    return "; ".join(filter(None, words))


def _choices(node: ast.expr) -> list[Json] | None:
    same = ast.List(elts=node.elts) if isinstance(node, ast.Tuple | ast.Set) else node
    choices = literal(same)
    return choices if isinstance(choices, list) else None


def _type_name(settings: Mapping[str, ast.expr]) -> str:
    return (_name(settings["type"]) or "?") if "type" in settings else "str"


def _is_count(nargs: Json) -> bool:
    return isinstance(nargs, int) and not isinstance(nargs, bool) and 0 < nargs < 100


def _name(node: ast.AST | None) -> str | None:
    """The last part of a dotted name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _text(node: ast.expr | None) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
    return None


def _source(node: ast.expr) -> str:
    return ast.unparse(node)


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
