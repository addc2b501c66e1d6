"""The programs that a command starts, as far as its words and the shell scripts of the code tell.
Nothing is run."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sgpu_decl.code.sources import Source, sources
from sgpu_decl.text.shell_text import ASSIGNMENT, SHELLS, shell_tokens

PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?")
_PYTEST = frozenset({"pytest", "py.test"})
# They start the Python script or module that they are given.
_LAUNCHERS = frozenset({"accelerate", "composer", "deepspeed", "horovodrun", "torchrun"})
_LAUNCHING_MODULES = ("torch.distributed", "accelerate.", "deepspeed.", "lightning.fabric")
# They start the program that stands among their words.
_WRAPPERS = frozenset({
    "command", "conda", "env", "exec", "ionice", "mpiexec", "mpirun", "ncu", "nice", "nohup",
    "nsys", "numactl", "pdm", "pixi", "poetry", "rye", "setsid", "srun", "stdbuf", "taskset",
    "time", "timeout", "uv", "xvfb-run",
})  # fmt: skip
# Of these, the first word that is no option, no number and no variable is the program.
_DIRECT = frozenset({
    "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "time", "timeout",
})  # fmt: skip
# They start nothing of the code, and read of it what their words name.
_PLAIN = frozenset({
    "", "[", "[[", ":", "cat", "cd", "chmod", "cp", "date", "df", "du", "echo", "exit", "export",
    "false", "free", "grep", "head", "hostname", "id", "ln", "ls", "mkdir", "mv", "nvidia-smi",
    "pip", "pip3", "popd", "printenv", "printf", "pushd", "pwd", "rm", "rmdir", "sed", "set",
    "shopt", "sleep", "sort", "sync", "tail", "tee", "test", "touch", "tr", "trap", "true",
    "ulimit", "umask", "uname", "unset", "wait", "wc", "which", "whoami",
})  # fmt: skip
_LISTING = frozenset({"dir", "du", "find", "ls", "tree"})
_WORDS_OF_SHELL = frozenset({
    "!", "{", "}", "(", ")", "do", "done", "elif", "else", "fi", "if", "then", "until", "while",
})  # fmt: skip
_OPERATOR = re.compile(r"[;&|\n]+")
_COMMENT = re.compile(r"(^|(?<=\s))#.*", re.MULTILINE)
_DEEPEST = 8  # scripts that start each other

ReadScript = Callable[[str], str | None]


@dataclass(slots=True)
class CommandReach:
    """Attributes:
    words: everything that is written, each of which may name a file.
    started: the scripts and modules that a Python starts, as `train.py` or `package.module`.
    programs: the texts of `python -c`.
    tests: whether pytest runs.
    unknown: what starts and cannot be read, in words; None where all of it can.
    """

    words: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    tests: bool = False
    unknown: str | None = None


def command_reach(command: Sequence[str] | str, read: ReadScript) -> CommandReach:
    """Read a command.

    Args:
        read: gives the text of a file of the code, by its path; None where there is none.
    """
    reach = CommandReach()
    if isinstance(command, str):
        _text(command, read, reach, 0)
    else:
        reach.words += command
        _simple(list(command), read, reach, 0)
    return reach


def lists_folder(text: str) -> bool:
    """Whether a program lists the folder that it is started in, as `ls -l` does."""
    program, *words = text.split() or [""]
    return program in _LISTING and all(word.startswith("-") for word in words)


def _text(text: str, read: ReadScript, reach: CommandReach, depth: int) -> None:
    joined = text.replace("\\\n", " ")
    if "`" in joined or "$(" in joined or "<<" in joined or depth > _DEEPEST:
        reach.unknown = reach.unknown or "the command computes what it starts"
    for words in _commands(joined, reach):
        reach.words += words
        _simple(words, read, reach, depth)


def _commands(text: str, reach: CommandReach) -> Iterator[list[str]]:
    """The simple commands of a text, each as its words."""
    (*commands, last), is_whole = _split(text)
    yield from map(list, commands)
    if not is_whole:
        reach.unknown = reach.unknown or "the command cannot be read"
    yield list(last)


@lru_cache(maxsize=256)  # thousands of runs may start the same shell script
def _split(text: str) -> tuple[tuple[tuple[str, ...], ...], bool]:
    """The simple commands of a text, and whether these are all: a quote may have no end."""
    lexer = shlex.shlex(_COMMENT.sub("", text), posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if _OPERATOR.fullmatch(word):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return tuple(map(tuple, commands)), False
    return tuple(map(tuple, commands)), True


def _simple(words: list[str], read: ReadScript, reach: CommandReach, depth: int) -> None:
    """One program with its words."""
    while words and (words[0] in _WORDS_OF_SHELL or ASSIGNMENT.match(words[0])):
        words = words[1:]
    if not words or words[0] == "for":
        return
    program, rest = os.path.basename(words[0]), words[1:]
    if words[0].endswith(".py"):
        reach.started.append(words[0])
    elif PYTHON.fullmatch(program):
        _python(rest, reach)
    elif program in _PYTEST:
        reach.tests = True
    elif program in _LAUNCHERS:
        _launched(program, rest, reach)
    elif program in SHELLS:
        _shell(rest, read, reach, depth)
    elif program in _WRAPPERS:
        _wrapped(program, rest, read, reach, depth)
    elif program in (".", "source"):
        _script(rest[0] if rest else "", read, reach, depth)
    elif lists_folder(" ".join(words)):
        reach.words.append(".")
    elif words[0] not in _PLAIN:
        _script(words[0], read, reach, depth)


def _python(words: list[str], reach: CommandReach) -> None:
    for position, word in enumerate(words):
        rest = words[position + 1 :]
        if word == "-c":
            reach.programs += rest[:1]
            return
        if word == "-m" or (word.startswith("-m") and len(word) > 2):
            module = word[2:] or (rest[0] if rest else "")
            if module in _PYTEST:
                reach.tests = True
            elif module.startswith(_LAUNCHING_MODULES):
                _launched(module, rest, reach)
            elif module != "pip":
                reach.started.append(module)
            return
        if word == "-":
            break
        if not word.startswith("-") and (position == 0 or words[position - 1] not in ("-X", "-W")):
            reach.started.append(word)
            return
    reach.unknown = reach.unknown or "the command gives Python a program that is in no file"


def _launched(program: str, words: list[str], reach: CommandReach) -> None:
    """The first script or module among the words of a launcher."""
    for position, word in enumerate(words):
        if word.endswith(".py"):
            reach.started.append(word)
            return
        if word in ("-m", "--module") and position + 1 < len(words):
            named = [item for item in words[position + 1 :] if not item.startswith("-")]
            reach.started += named[:1]
            return
    reach.unknown = reach.unknown or f"`{program}` starts something that its words do not name"


def _shell(words: list[str], read: ReadScript, reach: CommandReach, depth: int) -> None:
    for position, word in enumerate(words):
        if word.startswith("-") and word.endswith("c") and not word.startswith("--"):
            _text(words[position + 1] if position + 1 < len(words) else "", read, reach, depth + 1)
            return
        if not word.startswith(("-", "+")) and word != "pipefail":
            _script(word, read, reach, depth)
            return


def _wrapped(
    program: str, words: list[str], read: ReadScript, reach: CommandReach, depth: int
) -> None:
    for position, word in enumerate(words):
        name = os.path.basename(word)
        if program in _DIRECT and not (
            word.startswith("-") or word[:1].isdigit() or ASSIGNMENT.match(word)
        ):
            _simple(words[position:], read, reach, depth)
            return
        if position and words[position - 1] in ("--with", "--python", "-p"):
            continue
        known = _LAUNCHERS | SHELLS | _PYTEST | _WRAPPERS
        if word.endswith(".py") or name in known or PYTHON.fullmatch(name):
            _simple(words[position:], read, reach, depth)
            return
        if name == "pip" or (program == "uv" and name == "sync"):
            return
    reach.unknown = reach.unknown or f"`{program}` starts a program that sgpu does not know"


def _script(path: str, read: ReadScript, reach: CommandReach, depth: int) -> None:
    text = read(path)
    first = (text or "").partition("\n")[0]
    if text is not None and first.startswith("#!") and "python" in first:
        reach.started.append(path)
    elif text is not None and (path.endswith((".sh", ".bash")) or "sh" in first):
        _text(text, read, reach, depth + 1)
    else:
        reach.unknown = reach.unknown or f"the command starts `{path}`, which sgpu does not know"


_WITH_A_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})
# With one of these words in a text, a part of it may never be executed.
_CONDITIONS = frozenset({"if", "case", "for", "while", "until", "select", "function", "{", "||"})


class ExecutedCode:
    """Which files of the code below a folder are executed. Thousands of runs start the same few
    scripts, and each of these is followed once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[Source, ...]] = {}

    def of(self, started: Iterable[str]) -> tuple[Source, ...]:
        """The files that entrypoints, scripts and modules execute, in the order of imports."""
        found: dict[Path, Source] = {}
        for item in (item for one in started for item in self._sources(one)):
            if item.path not in found or item.is_main:  # another script may import it, too
                found[item.path] = item
        return tuple(found.values())

    def _sources(self, started: str) -> tuple[Source, ...]:
        if started not in self._known:
            self._known[started] = sources(self._root, started)
        return self._known[started]


def scripts_of(command: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return what a command hands to a Python, as entrypoints: `train.py`, `package.module`."""
    if command is None:
        return ()
    return _scripts_in(command) if isinstance(command, str) else tuple(_started(command))


@lru_cache(maxsize=256)  # runs that differ in variables and arguments share a text
def _scripts_in(text: str) -> tuple[str, ...]:
    try:
        words = list(shell_tokens(text))
    except ValueError:
        return ()
    return () if _CONDITIONS.intersection(words) else tuple(_started(words))


def _started(words: Sequence[str]) -> Iterator[str]:
    if words and words[0].endswith(".py"):
        yield words[0]
    for position, word in enumerate(words):
        if PYTHON.fullmatch(os.path.basename(word)):
            yield from _after_python(iter(words[position + 1 :]))


def _after_python(words: Iterator[str]) -> Iterator[str]:
    """Yield the script or the modules that a Python with these arguments starts."""
    for word in words:
        if word == "-m":
            module = next(words, "")
            if module:
                yield from (module, f"{module}.__main__")
            return
        if word in _WITH_A_VALUE:
            next(words, None)
        elif not word.startswith("-") or word == "-c":
            if word.endswith(".py"):
                yield word
            return
