"""What a script says of its environment in a comment at its top (PEP 723).

https://packaging.python.org/en/latest/specifications/inline-script-metadata/
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.regular_files import read_regular

_BLOCK = re.compile(r"^# /// script[ \t]*\n((?:#(?:| .*)\n)+)# ///[ \t]*$", re.MULTILINE)


class ScriptHeader(NamedTuple):
    """`python` is a version specifier, such as `>=3.12`; `line` is that of the block."""

    dependencies: tuple[str, ...]
    python: str | None
    line: int


def script_header(path: Path) -> ScriptHeader | None:
    """The header of a script; None if it has none that can be read, or nothing stands in it."""
    try:
        text = read_regular(path).decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
    block = _BLOCK.search(text)
    if block is None:
        return None
    try:
        data = tomllib.loads("".join(f"{line[2:]}\n" for line in block[1].splitlines()))
    except tomllib.TOMLDecodeError:
        return None
    listed, python = data.get("dependencies"), data.get("requires-python")
    dependencies = tuple(map(str, listed)) if isinstance(listed, list) else ()
    python = python if isinstance(python, str) and python else None
    if not dependencies and python is None:
        return None
    return ScriptHeader(dependencies, python, text.count("\n", 0, block.start()) + 1)
