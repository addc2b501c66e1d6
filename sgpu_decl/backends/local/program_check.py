"""Whether the program of a command is there, where the PATH of its ranks is known."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.shell_text import ASSIGNMENT

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

# Programs that get the name that was probably meant: to look for it among all programs takes
# milliseconds, and each cell of a sweep may name another program.
_MOST_HINTS = 10


# Names that bash knows without a PATH: `compgen -b; compgen -k` of bash 5.2.
_OF_BASH = frozenset({
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command",
    "compgen", "complete", "compopt", "continue", "declare", "dirs", "disown", "echo",
    "enable", "eval", "exec", "exit", "export", "false", "fc", "fg", "getopts", "hash",
    "help", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf",
    "pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt",
    "source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit",
    "umask", "unalias", "unset", "wait", "if", "then", "else", "elif", "fi", "case", "esac",
    "for", "select", "while", "until", "do", "done", "in", "function", "time", "{", "}", "!",
    "[[", "]]", "coproc",
})  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z][\w.+-]*")
_SEPARATOR = re.compile(r"[;&|()\n]+")
_PREFIXES = frozenset({"exec", "time", "{"})
# What brings no programs and takes none away.
_QUIET = frozenset(
    {"cd", "echo", "export", "mkdir", "printf", "pwd", "set", "ulimit", "umask", ":"}
)


@lru_cache(maxsize=256)  # runs that differ in variables and arguments share a text
def _first_program(text: str) -> str | None:
    """The first program that the text of a command starts, if that is clear: its name is neither
    quoted nor expanded, the text does not go on without it (`||`), and sets no PATH before."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=False, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        words = list(lexer)
    except ValueError:
        return None
    at_start, quiet = True, False
    for position, word in enumerate(words):
        assignment = ASSIGNMENT.match(word)
        if _SEPARATOR.fullmatch(word):
            at_start = True
        elif assignment is not None and (at_start or quiet):
            if assignment[1] == "PATH":
                return None
        elif at_start and word not in _PREFIXES:
            at_start, quiet = False, word in _QUIET
            if not quiet:
                after = next(filter(_SEPARATOR.fullmatch, words[position + 1 :]), "")
                known = _PLAIN.fullmatch(word) and word not in _OF_BASH
                return word if known and not after.startswith(("||", "(")) else None
    return None


class ProgramCheck:
    """Warns of programs that ranks cannot start. Of text, the first program counts: what comes
    later, the first may have brought. A declared environment may bring the program: it comes first
    on the PATH, and need not be built yet."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` is the environment of this process, which ranks inherit."""
        self._environ = environ
        self._found: dict[tuple[str, str], bool] = {}
        self._closest: dict[tuple[str, str], str | None] = {}

    def check(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        """What is wrong with the program of a run; `code.root` is relative to `folder`."""
        command = config.command
        if command is None or config.ray is not None:
            return ()
        program = _first_program(command) if isinstance(command, str) else command[0]
        missing = self._missing(program, config, folder) if program is not None else None
        if missing is None:
            return ()
        summary, hint = missing
        place = places.get("command")
        return (
            Diagnostic(
                code="program_missing",
                severity=Severity.WARNING,
                summary=summary,
                place=place,
                hint=hint,
            ),
        )

    def _missing(self, program: str, config: "RunConfig", folder: Path) -> tuple[str, str] | None:
        """What to say of a program that is not there, and what to do."""
        if "/" in program:
            found = folder / (config.code.root or ".") / program
            if os.access(found, os.X_OK) and not found.is_dir():
                return None
            if found.is_file():
                return f"the program `{program}` is not executable", f"`chmod +x {program}`"
            return f"the program `{program}` does not exist", "correct the path"
        env = config.env
        if env.origins or env.use or "PATH" in env.secrets:
            return None
        path = env.variables.get("PATH") or self._environ.get("PATH") or os.defpath
        if (program, path) not in self._found:
            self._found[program, path] = shutil.which(program, path=path) is not None
        if self._found[program, path]:
            return None
        beside = os.path.join(os.path.dirname(sys.executable), program)
        if os.access(beside, os.X_OK):
            return (
                f"there is no program `{program}` on the PATH of the ranks",
                f"`{beside}` lies beside sgpu: write that path, or activate its environment",
            )
        closest = self._nearest(program, path)
        hint = f"did you mean `{closest}`?" if closest else "correct the name, or install it"
        return f"there is no program `{program}` on the PATH of the ranks", hint

    def _nearest(self, program: str, path: str) -> str | None:
        key = (program, path)
        if key not in self._closest:
            if len(self._closest) == _MOST_HINTS:
                return None
            self._closest[key] = nearest(program, _programs(path))
        return self._closest[key]


def _programs(path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        try:
            yield from os.listdir(folder or ".")
        except OSError:
            continue
