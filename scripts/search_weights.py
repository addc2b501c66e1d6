"""A hook of mkdocs: what the search of the site shows first. Pages of tasks and answers come before
others, and lists that name everything come last."""

from typing import Any

WEIGHTS = {
    "docs/how-to/": 1.5,
    "docs/faq.md": 1.5,
    "docs/tutorial.md": 1.5,
    "docs/faults.md": 0.2,
    "docs/codes/": 0.2,
    "docs/contributing/": 0.2,
    "ARCHITECTURE.md": 0.2,
    "CONTRIBUTING.md": 0.2,
    "CHANGELOG.md": 0.2,
}
"""By the folder or the page."""


def on_page_markdown(_: str, *, page: Any, **_others: Any) -> None:
    for place, weight in WEIGHTS.items():
        if page.file.src_uri.startswith(place):
            page.meta["search"] = {"boost": weight}
