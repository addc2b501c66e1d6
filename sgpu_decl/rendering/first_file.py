"""The first run file or project file of a user, for a script that is there already."""

import json
import re
from collections.abc import Iterator, Sequence

from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.script_argument import EntryArguments, ScriptArgument

_PLAIN = re.compile(r"(--?)?[A-Za-z_/][\w./=:+-]*(?<!:)", re.ASCII)
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
_Line = tuple[str, str]
"""A line and its comment."""

_GPUS = "the world size: one rank (process) per GPU"
_TYPE = "CPU: ranks without a GPU; GPU: those that are there; or one by its name, such as A100"


def first_file(
    *, schema: str, name: str, gpus: int, type_: str, path: str, entry: EntryArguments
) -> str:
    """The text of a run file.

    Args:
        schema: the path of the JSON Schema beside the file.
        type_: the type of GPU.
        path: of the script, relative to the file.
    """
    return _joined([
        (f"# yaml-language-server: $schema={schema}", ""),
        ("# `sgpu plan` shows what would happen, `sgpu apply` does it", ""),
        (f"name: {yaml_text(name)}", ""),
        (f"gpus: {gpus}", _GPUS),
        (f"type: {type_}", _TYPE),
        *_entry(path, entry),
    ])  # fmt: skip


def first_project(*, schema: str, name: str, run: str, path: str, entry: EntryArguments) -> str:
    """The text of a project file with one run, `run`, and two targets."""
    key = yaml_text(run)
    return _joined([
        (f"# yaml-language-server: $schema={schema}", ""),
        ("# `sgpu plan -t dev` shows what would happen, `sgpu apply -t dev` does it", ""),
        (f"project: {{name: {yaml_text(name)}}}", ""),
        ("", ""),
        ("runs:", ""),
        (f"  {key}:", ""),
        ("    gpus: 1", _GPUS),
        ("    type: GPU", _TYPE),
        *((f"    {line}", comment) for line, comment in _entry(path, entry)),
        ("", ""),
        ("# what differs from the run above; each target has a state of its own", ""),
        ("targets:", ""),
        ("  dev:", ""),
        (f"    runs: {{{key}: {{type: CPU, gpus: 2}}}}", "two ranks on any machine"),
        ("  prod:", ""),
        (f"    runs: {{{key}: {{gpus: 8}}}}", "`backend` says where, if not on this machine"),
    ])  # fmt: skip


def _entry(path: str, entry: EntryArguments) -> Iterator[_Line]:
    is_script = entry.function is None
    target = path if is_script else f"{path}:{entry.function}"
    what = "this file, run as a script" if is_script else "this function, called"
    yield f"entrypoint: {yaml_text(target)}", f"{what} in every rank"
    if entry.note is not None:
        yield f"# {entry.note}", ""
    if not entry.arguments:
        return
    some = any(argument.given for argument in entry.arguments)
    yield "args:" if some else "# args:", "its command line" if is_script else "its arguments"
    for argument in entry.arguments:
        mark = "  " if argument.given else "  # " if some else "#   "
        *first, last = _words(argument) if is_script else _value(argument)
        yield from ((mark + line, "") for line in first)
        yield mark + last, _about(argument)


def _words(argument: ScriptArgument) -> list[str]:
    return [f"- {yaml_text(word)}" for word in argument.words]


def _value(argument: ScriptArgument) -> list[str]:
    value = _json(argument.value) if argument.given else "..."
    return [f"{yaml_text(argument.name)}: {value}"]


def _about(argument: ScriptArgument) -> str:
    if not argument.required:
        return argument.kind
    positional = argument.words and not argument.name.startswith("-")
    words = [f"`{argument.name}`" if positional else "", argument.kind]
    return f"required: {', '.join(filter(None, words))}".rstrip(": ")


def _json(value: Json) -> str:
    return yaml_text(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def yaml_text(word: str) -> str:
    """A text as YAML: in quotes, unless it can be nothing else."""
    if _PLAIN.fullmatch(word) and word.lower() not in _NOT_TEXT:
        return word
    return json.dumps(word, ensure_ascii=False)


def _joined(lines: Sequence[_Line]) -> str:
    return "".join(
        f"{f'{line} # {comment}' if comment else line}".rstrip() + "\n" for line, comment in lines
    )
