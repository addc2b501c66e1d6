"""What ranks execute: `entrypoint` or `command`, and the arguments."""

import os
import re
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, JsonValue, Tag

from sgpu_decl.config.right_forms import flow_list
from sgpu_decl.config.text_types import problem

_FILE = re.compile(r"[^:\0]+\.py(?::[^\W\d]\w*(?:\.[^\W\d]\w*)*)?")
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_MODULE_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_STARTERS = ("python", "python3", "torchrun")
_PLAIN = re.compile(r"[\w ./=-]+", re.ASCII)


def is_entrypoint(text: str) -> bool:
    """Whether a text has the form of an entrypoint."""
    return bool(_FILE.fullmatch(text) or _MODULE.fullmatch(text))


def _entrypoint(text: str) -> str:
    if _MODULE.fullmatch(text):
        return text
    if _FILE.fullmatch(text):  # `./a.py` is `a.py`
        file, *function = text.split(":", 1)
        return ":".join([os.fspath(PurePosixPath(file)), *function])
    raise problem(
        "bad_entrypoint",
        "{path} must be an entrypoint, not {given}",
        entrypoint_hint(text),
    )


def entrypoint_hint(text: str) -> str:
    """The hint for what is no entrypoint, such as the words of a command line: `-m pkg.mod`,
    `train.py --lr 1`, `python train.py`."""
    words = text.split()
    first = words[0].rpartition("/")[2] if words else ""
    if starts := first in _STARTERS and len(words) > 1:
        words = words[1:]
    if words[:1] == ["-m"] and len(words) > 1 and _MODULE_NAME.fullmatch(words[1]):
        program = flow_list(["python", *words])
        return f"write `command: {program}`, or `entrypoint: {words[1]}:FUNCTION`"
    if words and _FILE.fullmatch(words[0]) and _PLAIN.fullmatch(text) and (starts or words[1:]):
        with_args = f" and `args: {flow_list(words[1:])}`" if words[1:] else ""
        return f"write `entrypoint: {words[0]}`{with_args}"
    return (
        "write `FILE.py`, `FILE.py:FUNCTION` or `package.module:FUNCTION`; a program of another "
        "kind goes into `command`"
    )


def _command(value: Any) -> Any:
    if not value or (isinstance(value, str) and not value.strip()):
        raise problem("empty_command", "{path} is empty", "write what to execute")
    return value


def _some_command(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        return value
    raise problem(
        "wrong_type", "{path} must be text or a list, not {given}", "write `[python, -m, tool]`"
    )


def _some_args(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return value
    raise problem(
        "wrong_type",
        "{path} must be a mapping or a list, not {given}",
        f"write `args: {flow_list(value.split())}`"
        if isinstance(value, str) and _PLAIN.fullmatch(value)
        else "a mapping holds a function's arguments, a list those of a script",
    )


def calls_function(entrypoint: str | None) -> bool:
    """Whether an entrypoint names a function."""
    return entrypoint is not None and ":" in entrypoint


def _list_or_text(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<text>"


def _list_or_mapping(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<mapping>"


Entrypoint = Annotated[str, AfterValidator(_entrypoint)]
Command = Annotated[
    Annotated[tuple[str, ...], Tag("<list>")] | Annotated[str, Tag("<text>")],
    Discriminator(_list_or_text),
    AfterValidator(_command),
    BeforeValidator(_some_command),
]
Args = Annotated[
    Annotated[list[str], Tag("<list>")] | Annotated[dict[str, JsonValue], Tag("<mapping>")],
    Discriminator(_list_or_mapping),
    BeforeValidator(_some_args),
]
