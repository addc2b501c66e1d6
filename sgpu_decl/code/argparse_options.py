"""Reads from the source which command line a script takes by `argparse`. Nothing is run.

An argument is `given` only if its words on the command line certainly do the same as its default:
https://docs.python.org/3/library/argparse.html#the-add-argument-method
"""

import ast
from collections.abc import Iterator, Mapping, Sequence

from sgpu_decl.code.literals import is_plain_text, literal, one_of, shown_source
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.script_argument import PLACEHOLDER, EntryArguments, ScriptArgument

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
        name=name, kind=_kind(settings, default=not given), required=required, given=given,
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


def _kind(settings: Mapping[str, ast.expr], *, default: bool) -> str:
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
