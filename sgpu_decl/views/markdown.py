"""Text inside of GitHub Markdown that nothing in it can break out of."""

import html
import re

from sgpu_decl.views.terminal import escape

__all__ = ["code", "fenced", "link", "prose"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def code(text: str) -> str:
    """A code span: its fence is longer than any run of backticks in it."""
    safe = escape(text)
    fence = "`" * (_longest_run(safe) + 1)
    space = " " if safe.startswith("`") or safe.endswith("`") else ""
    return f"{fence}{space}{safe}{space}{fence}"


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


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", html.escape(text, quote=False))
