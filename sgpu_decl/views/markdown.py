"""Text inside of GitHub Markdown that nothing in it can break out of."""

import html
import re

from sgpu_decl.views.terminal import escape

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")
_BAR = re.compile(r"(?<!\\)(\\*)\|")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def code(text: str) -> str:
    """A code span: its fence is longer than any run of backticks in it. Of no text it is a space,
    since a fence alone could begin another span."""
    safe = escape(text) or " "
    fence = "`" * (_longest_run(safe) + 1)
    space = " " if safe.startswith("`") or safe.endswith("`") else ""
    return f"{fence}{space}{safe}{space}{fence}"


def cell(markdown: str) -> str:
    """The same inside a table, where a bar would end the cell even in a code span. An odd number of
    backslashes keeps the bar in the cell, whether a reader takes two of them for a pair or not."""
    return _BAR.sub(lambda bar: bar[1] + "\\" * (1 - len(bar[1]) % 2) + "|", markdown)


def prose(text: str) -> str:
    """Escape Markdown outside of the literals that our messages put in backticks."""
    parts = escape(text).split("`")
    return "".join(
        code(part) if index % 2 and index < len(parts) - 1 else _plain(part)
        for index, part in enumerate(parts)
    )


def fenced(text: str, language: str = "text") -> str:
    """A block of lines as they are, without their colours."""
    lines = [escape(line) for line in _COLOUR.sub("", text).rstrip("\n").split("\n")]
    fence = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    return "\n".join([fence + language, *lines, fence])


def link(target: str) -> str:
    """An address of the web as a link, anything else (a path, a database) as code."""
    if re.fullmatch(r"https?://[^\s<>]+", target):
        return f"<{target}>"
    return code(target)


def written_size(text: str) -> int:
    """How many bytes a text takes on stdout, with the newline that follows it."""
    return len(text.encode(errors="backslashreplace")) + 1


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", html.escape(text, quote=False))
