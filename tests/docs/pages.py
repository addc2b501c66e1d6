"""The pages of the documentation, and what tests read from them and from what writes them."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.support import some

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("**/README.md")),
)
FENCE = re.compile(r"^( *)(```+)([^\n]*)\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text without blocks of code."""
    return FENCE.sub("", page.read_text())


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The language and the text of each block of code, without its indent."""
    for indent, _, language, text in FENCE.findall(page.read_text()):
        yield language.strip(), re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(page), flags=re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return frozenset(
        name if not number else f"{name}-{number}"
        for name, count in found.items()
        for number in range(count + 1)
    )


def script(name: str) -> ModuleType:
    """A module below scripts/."""
    (path,) = (ROOT / "scripts").rglob(f"{name}.py")
    spec = some(importlib.util.spec_from_file_location(name, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
