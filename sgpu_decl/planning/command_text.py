"""Whether bash can read the text of a command, and whether the text is one for shells of people.

`bash -n` parses and executes nothing (Bash Reference Manual, 4.3.1, `set -n`).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_MOST = 50  # a process each: texts beyond are those of a large sweep, and differ in values
_LONGEST = 64 << 10  # a word of a command line has at most 128 KiB
# Text without marks and without words that need others after them.
_SIMPLE = re.compile(
    r"(?!.*\b(?:if|for|while|until|case|select|function|then|do|else|elif|fi|done|esac|in)\b)"
    r"[\w\s./:=,@%+~^-]*",
    re.DOTALL,
)
# Files such as `~/.bashrc` return at once unless the shell is interactive, or read `PS1`, which is
# not set (`-u`); `conda activate` is a function that only they define.
_INTERACTIVE = re.compile(
    r"(?:^|[;&|]|\bthen\b|\bdo\b)[ \t]*"
    r"(?:(?:source|\.)[ \t]+\S*\.(?:bashrc|bash_profile|profile|zshrc)\b"
    r"|conda[ \t]+activate\b[^;&|\n]*)",
    re.MULTILINE,
)
_SEPARATOR = re.compile(r"^(?:[;&|]|then\b|do\b)?\s*|\s+$")
_UNSET_ALLOWED = re.compile(r"\bset[ \t]+\+\w*u")
_NUMBERS = re.compile(r"\d[\w.+-]*")
# What has to be executed before bash knows how to read what follows, or that nothing follows.
_DECIDES = re.compile(r"^\s*(exit|exec|eval|alias|shopt|enable|source|\.)\b", re.MULTILINE)
# The version is asked first: bash 3, that of macOS, does not know what nodes know.
_PARSE = '((BASH_VERSINFO[0] >= 4)) || exit 0; exec "$BASH" $2 -n -c "$1"'
_MESSAGE = re.compile(r"^.*?: (?:-c: )?line (\d+): (.*)$", re.MULTILINE)


class CommandTexts:
    """Texts that differ in numbers alone, as those of a sweep do, are parsed once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def check(self, config: "RunConfig", places: Mapping[str, Place]) -> tuple[Diagnostic, ...]:
        text = config.command
        if not isinstance(text, str):
            return ()
        return (*_interactive(text, places.get("command")), *self._unreadable(text, places))

    def _unreadable(self, text: str, places: Mapping[str, Place]) -> tuple[Diagnostic, ...]:
        if _SIMPLE.fullmatch(text) or len(text) > _LONGEST:
            return ()
        kind = _NUMBERS.sub("0", text)
        if kind in self._seen or len(self._seen) >= _MOST:
            return ()
        self._seen.add(kind)
        said = _parse(text)
        match = _MESSAGE.search(said)
        if match is None:
            return ()
        certain = _DECIDES.search(text) is None
        return (
            Diagnostic(
                code="bad_command_text",
                severity=Severity.ERROR if certain else Severity.WARNING,
                summary=f"bash cannot read line {match[1]} of the command: {match[2]}",
                place=places.get("command"),
                hint="correct it: often a quote or a bracket has no end, or a `'` inside of quotes "
                "is one quote too many",
            ),
        )


def _interactive(text: str, place: Place | None) -> tuple[Diagnostic, ...]:
    """Text that sets up an interactive shell, whose end bash takes for the end of the run."""
    found = _INTERACTIVE.search(text)
    if found is None or _UNSET_ALLOWED.search(text[: found.start()]):
        return ()
    line = text.count("\n", 0, found.start()) + 1
    words = _SEPARATOR.sub("", found[0])
    return (
        Diagnostic(
            code="interactive_setup",
            severity=Severity.WARNING,
            summary=f"line {line} of the command, `{words}`, needs an interactive shell: that of a "
            "run is not interactive, and ends at a variable that is not set",
            place=place,
            hint="use `conda run -n ENV ...`, or name the interpreter, `env: {python: PATH}`; or "
            "write `set +eu` before the line and `set -eu` after it",
        ),
    )


@cache
def _parse(text: str) -> str:
    """What bash says of a text that it cannot read; nothing where it can, or where it is not."""
    import subprocess

    options = "-Oextglob" if "extglob" in text else ""
    try:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", _PARSE, "bash", text, options],
            env={"LC_ALL": "C", "PATH": "/bin:/usr/bin:/usr/local/bin"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.decode(errors="replace") if done.returncode else ""
