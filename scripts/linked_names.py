"""A hook of mkdocs: the first mention of a name on a page becomes a link to the name's page.

A name is a command, a variable, a code of a check or an error, or a field. A field of one word,
such as `type`, is a word for too many other things: it is linked where a value stands with it, as
in `resume: auto`. The headings of the pages of names are what is linked.
"""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

from mkdocs.utils import get_relative_url

FIELDS = "docs/reference/fields.md"
CODES = "docs/codes/"  # pages that `code_pages.py` makes
PAGES_OF_NAMES = (
    "docs/reference/variables.md",
    FIELDS,
    "docs/reference/commands.md",
)
HEADING = re.compile(r'<h[2-4] id="([^"]+)"><code>([^<]+)</code>')
MENTION = re.compile(r"<(/?)(a|pre|h[1-6])\b[^>]*>|<code>([^<]+)</code>")


def on_env(env: Any, *, files: Any, **_: Any) -> Any:
    pages = {file.src_uri: file.page for file in files.documentation_pages()}
    places = {
        key: (pages[source].url, anchor)
        for source in (*PAGES_OF_NAMES, *(name for name in pages if name.startswith(CODES)))
        for anchor, name in HEADING.findall(pages[source].content)
        if (key := _key(unescape(name), field=source == FIELDS)) is not None
    }
    for page in pages.values():
        page.content = _linked(page.content, places, page.url)
    return env


def _key(name: str, *, field: bool) -> str | None:
    """What a heading is found by: `resume: ` for a field of one word."""
    if re.search(r"[._ ]", name):
        return name
    return f"{name}: " if field else None


def _linked(content: str, places: dict[str, tuple[str, str]], here: str) -> str:
    seen: set[str] = set()
    return MENTION.sub(_replacement(places, here, seen), content)


def _replacement(
    places: dict[str, tuple[str, str]], here: str, seen: set[str]
) -> Callable[[re.Match[str]], str]:
    inside = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal inside
        closing, tag, code = match.groups()
        if tag:
            inside += -1 if closing else 1
            return match[0]
        name = _named(" ".join(unescape(code).split()), places)
        if inside or name is None or name in seen or places[name][0] == here:
            return match[0]
        seen.add(name)
        url, anchor = places[name]
        return f'<a class="name" href="{get_relative_url(url, here)}#{anchor}">{match[0]}</a>'

    return replace


def _named(code: str, places: dict[str, tuple[str, str]]) -> str | None:
    """The longest name that `code` is; of a command line, the command."""
    words = code.split(" ")
    if words[0] != "sgpu":
        field = re.match(r"[a-z]+: (?=\S)", code)
        key = field[0] if field is not None else code
        return key if key in places else None
    lines = (" ".join(words[:count]) for count in range(len(words), 1, -1))
    return next((line for line in lines if line in places), None)
