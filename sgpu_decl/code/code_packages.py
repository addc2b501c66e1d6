"""Which packages code asks for: those that it imports, those that it or a command installs with
pip, and those that a script names in a comment at its top (PEP 723). Nothing is imported or run.

A plan cannot see what a line with `pip install` installs, and every node repeats it at every start.
Source of PEP 723: https://packaging.python.org/en/latest/specifications/inline-script-metadata/
"""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.code.sources import Source, parse_source
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.regular_files import read_regular
from sgpu_decl.text.shell_text import ASSIGNMENT, SHELLS, shell_tokens

# In the standard library of other versions of Python.
# fmt: off
_ELSEWHERE = frozenset({
    "annotationlib", "asynchat", "asyncore", "cgi", "cgitb", "compression", "crypt",
    "distutils", "imghdr", "imp", "lib2to3", "nntplib", "pipes", "smtpd", "sndhdr", "spwd",
    "telnetlib", "tomllib", "uu", "xdrlib",
})
# fmt: on
_OURS = frozenset({"sgpu_decl", "__main__"})


def code_names(paths: Collection[str]) -> frozenset[str]:
    """Every name by which a file of the code could be imported, whichever of its folders are on
    `sys.path`. `paths` are relative, with `/`."""
    names: set[str] = set()
    for path in paths:
        *folders, file = path.split("/")
        names.update(folders)
        names.add(file.partition(".")[0])
    return frozenset(names)


def outside_imports(executed: Iterable[Source], names: Collection[str]) -> dict[str, Place]:
    """The top-level packages that a run imports from outside its code and the standard library.

    Args:
        executed: the files of the code that the run executes.
        names: the result of `code_names`.

    Returns:
        Each package with the place of its first import, relative to the root of the code.
    """
    packages: dict[str, Place] = {}
    known_names = _OURS | _ELSEWHERE | sys.stdlib_module_names
    for source in executed:
        for item in source.imports:
            top = item.module.partition(".")[0]
            if not item.level and top not in names and top not in known_names:
                packages.setdefault(top, Place(source.shown, item.line, item.column))
    return packages


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


_PIP = re.compile(r"pip(\d+(\.\d+)?)?")
_CONDA = frozenset({"conda", "mamba", "micromamba"})
# fmt: off
_BEFORE = frozenset({
    "sudo", "env", "time", "exec", "command", "nohup", "then", "do", "else", "if", "while",
    "until", "!", "{", "eval", "nice", "ionice",
})
# fmt: on
_TELLTALE = re.compile(r"install|add|\.ipynb")  # one of these is in every command that is found
_SEPARATORS = frozenset("();<>|&")
_MAGIC = re.compile(r"\s*(?:#\s*MAGIC\s+)?[%!]\s*(.+)")
_CALLS = frozenset({"run", "call", "check_call", "check_output", "Popen", "system"})
_LARGEST = 4 << 20  # bytes of a notebook: beyond it, it holds output rather than text


def installs_in_command(
    command: str | Sequence[str], root: Path, place: Callable[[str], Place | None]
) -> tuple[Diagnostic, ...]:
    """Warnings for words of `command`, and cells of its notebooks, that install packages.

    Args:
        command: as written: text for bash, or argv.
        root: the folder of the code, where notebooks lie.
        place: gives the place of a dotted field path.
    """
    commands = list(_commands(command)) if isinstance(command, str) else [list(command)]
    findings = [
        _finding(words, "`command`", place("command"))
        for one in commands
        if (words := _installing(one)) is not None
    ]
    for word in (word for one in commands for word in one if word.endswith(".ipynb")):
        findings += _in_notebook(root, word)
    return tuple(findings)


def may_install(command: str | Sequence[str]) -> bool:
    """Whether it is worth to call `installs_in_command`: it is not for most."""
    return _TELLTALE.search(command if isinstance(command, str) else " ".join(command)) is not None


def installs_in_code(executed: Iterable[Source]) -> tuple[Diagnostic, ...]:
    """Warnings for lines of executed code that install packages.

    They are calls of `subprocess` and `os.system` with literal words, and magic lines of a notebook
    that was saved as source. Places are relative to the root of the code.
    """
    findings = []
    for source in executed:
        for line, words in _lines_that_install(source.path):
            findings.append(_finding(words, f"`{source.shown}`", Place(source.shown, line, 1)))
    return tuple(findings)


def _lines_that_install(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        if "install" not in text:  # most files: they are not parsed
            return []
        return [*_calls(parse_source(path)), *_magic(text)]
    except (SyntaxError, OSError, ValueError):  # changed since it was parsed
        return []


def _commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, as lists of words; lines that cannot be split are
    skipped."""
    for line in text.replace("\\\n", " ").split("\n"):
        words: list[str] = []
        try:
            for word in shell_tokens(line):
                if word and set(word) <= _SEPARATORS:
                    yield words
                    words = []
                else:
                    words.append(word)
        except ValueError:  # a quote that goes on in the next line
            continue
        yield words


def _installing(words: Sequence[str]) -> str | None:
    """The words of a command that installs packages, up to `install`: later words may contain a
    password. `None` for all other commands."""
    rest = list(words)
    while rest and (rest[0] in _BEFORE or ASSIGNMENT.match(rest[0])):
        rest = rest[1:]
    if not rest:
        return None
    program = rest[0].rpartition("/")[2]
    if program in SHELLS and "-c" in rest[:-1]:
        inner = (_installing(command) for command in _commands(rest[rest.index("-c") + 1]))
        return next((item for item in inner if item is not None), None)
    if "-m" in rest[:-1]:
        at = rest.index("-m") + 1
        program, rest = rest[at], rest[at:]
    if program == "uv":
        rest = rest[1:]
        program = rest[0] if rest else ""
        if program == "add":
            return "uv add"
    verb = next((word for word in rest[1:] if not word.startswith("-")), None)
    if verb != "install" or not (_PIP.fullmatch(program) or program in _CONDA):
        return None
    return " ".join(words[: list(words).index("install") + 1])


def _calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        if name in _CALLS and (words := _argument(node.args[0])) is not None:
            yield node.lineno, words


def _argument(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        commands = (_installing(command) for command in _commands(value.value))
        return next((item for item in commands if item is not None), None)
    if isinstance(value, ast.List | ast.Tuple):
        # anything else, mostly `sys.executable`, stands for a program
        return _installing([_literal(elt) for elt in value.elts])
    return None


def _literal(value: ast.expr) -> str:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return "…"


def _magic(text: str) -> Iterator[tuple[int, str]]:
    """`# MAGIC %pip install x` of a notebook that was saved as a source file."""
    if not text.startswith("# Databricks notebook source"):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("# MAGIC"):
            yield from ((number, words) for words in _magic_words(line))


def _in_notebook(root: Path, name: str) -> list[Diagnostic]:
    """The cells of a notebook. One that cannot be read is skipped: the ranks report it."""
    path = root / name
    try:
        if path.stat().st_size > _LARGEST:
            return []
        cells = json.loads(path.read_bytes())["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    lines = [
        line
        for source in sources
        for line in ("".join(source) if isinstance(source, list) else str(source)).split("\n")
    ]
    return [
        _finding(words, f"`{name}`", Place(name, 1, 1))
        for line in lines
        for words in _magic_words(line)
    ]


def _magic_words(line: str) -> Iterator[str]:
    match = _MAGIC.fullmatch(line)
    if match is None:
        return
    for one in _commands(match[1]):
        words = _installing(one)
        if words is not None:
            yield words


def _finding(words: str, where: str, place: Place | None) -> Diagnostic:
    return Diagnostic(
        code="install_in_run",
        severity=Severity.WARNING,
        summary=f"`{words}` in {where} is invisible to this diff, and repeated on every node and "
        "retry",
        place=place,
        hint="declare it in `env.dependencies` or `env.lock`, or install it here and write "
        "`env: {snapshot: true}`",
    )
