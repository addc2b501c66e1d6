"""The run file that says the same as a command line: `python train.py --lr 1e-3` on two GPUs."""

import json
import os
import re
from collections.abc import Sequence
from math import isfinite
from pathlib import PurePath

from sgpu_decl.config.entry import calls_function, is_entrypoint
from sgpu_decl.errors import Usage
from sgpu_decl.text.yaml_nodes import Sequence as YamlSequence
from sgpu_decl.text.yaml_nodes import resolve
from sgpu_decl.text.yaml_reader import load

_PLAIN = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|[A-Za-z_./][\w./-]*")
_COLLECTION = re.compile(r"\[.*\]|\{.*\}")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ARGUMENT = re.compile(r"([^\W\d]\w*)=(.*)", re.DOTALL)
_SCRIPT = re.compile(r"[^:]+\.(?:py|sh)")
_PYTHON = ("python", "python3")

_Fields = dict[str, "_Fields | str"]
"""Blocks of fields; a value is its YAML."""


def name_of(words: Sequence[str]) -> str:
    """A name for the run of a command: that of its script, else of its program."""
    script = next((word for word in words if _SCRIPT.fullmatch(word)), words[0])
    start = PurePath(script.partition(":")[0]).name
    file = start.endswith((".py", ".sh"))
    module = is_entrypoint(words[0]) and not file
    stem = start[:-3] if file else start.rpartition(".")[2] if module else start
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
    return plain[:100] or "run"


def run_file(
    words: Sequence[str],
    *,
    name: str,
    gpus: int,
    type_: str,
    python: str | None = None,
    dependencies: Sequence[str] = (),
    sets: Sequence[tuple[str, str]] = (),
) -> str:
    """The YAML of a run.

    Args:
        words: a command. A first word such as `train.py` or `train.py:main` is an entrypoint, and
            so is `train.py` in `python train.py`; what follows are its arguments.
        python: the interpreter of the run, if it is not that of sgpu itself.
        dependencies: the packages that the script says it needs.
        sets: dotted paths and values of more fields, in order.

    Raises:
        Usage: an argument of a function is not of the form `name=value`, or a word is not UTF-8.
    """
    fields: _Fields = {"name": name, "gpus": str(gpus), "type": _text(type_)}
    interpreted = words[0] in _PYTHON and len(words) > 1 and words[1].endswith(".py")
    start, arguments = (words[1], words[2:]) if interpreted else (words[0], words[1:])
    if not is_entrypoint(start):
        fields["command"] = _list(words)
    else:
        fields["entrypoint"] = _text(start)
        if arguments:
            fields["args"] = _named(arguments) if calls_function(start) else _list(arguments)
    env: _Fields = {"dependencies": _list(dependencies)} if dependencies else {}
    if python is not None and is_entrypoint(start):
        env["python"] = _text(python)
    if env:
        fields["env"] = env
    for path, value in sets:
        _put(fields, path.split("."), _value(value))
    return "".join(f"{key}: {_flow(value)}\n" for key, value in fields.items())


def _put(fields: _Fields, path: Sequence[str], value: str) -> None:
    key, *below = path
    if not below:
        fields[key] = value
        return
    inside = fields.get(key)
    block = inside if isinstance(inside, dict) else {}
    fields[key] = block
    _put(block, below, value)


def _flow(value: _Fields | str) -> str:
    if isinstance(value, str):
        return value
    return f"{{{', '.join(f'{key}: {_flow(one)}' for key, one in value.items())}}}"


def _named(arguments: Sequence[str]) -> _Fields:
    """The arguments of a function."""
    fields: _Fields = {}
    for argument in arguments:
        match = _ARGUMENT.fullmatch(argument)
        if match is None:
            raise Usage(
                f"`{argument}` is no argument of a function",
                hint="write `name=value`; the words of a script follow `FILE.py` alone",
            )
        fields[match[1]] = _value(match[2])
    return fields


def _value(text: str) -> str:
    """A value as it is typed: a number, a list, a word; everything else is text."""
    if _PLAIN.fullmatch(text):
        value = resolve(text)  # `695e0514` looks like a number, and no machine has it
        return _quoted(text) if isinstance(value, float) and not isfinite(value) else text
    return text if _is_collection(text) else _quoted(text)


def _is_collection(text: str) -> bool:
    """Whether a text is one list or mapping of YAML, also inside another."""
    if not _COLLECTION.fullmatch(text):
        return False
    document, findings = load(f"value: [{text}]", "value")
    value = document.root.entries["value"] if document is not None and not findings else None
    return isinstance(value, YamlSequence) and len(value.items) == 1


def _list(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _text(word: str) -> str:
    """A text as YAML: in quotes, unless it is a plain word."""
    plain = re.fullmatch(r"[A-Za-z_./][\w./:-]*[\w./-]", word, re.ASCII)
    known = word.lower() in ("true", "false", "null")
    return word if plain and not known else _quoted(word)


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python keeps each such byte as a surrogate
        shown = os.fsencode(text).decode("utf-8", "backslashreplace")
        raise Usage(f"`{shown}` is not UTF-8 text") from None
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
