"""Each link of a page leads to a file that is there, and to a heading that is there."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, prose, title

INLINE = re.compile(r"\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)\)")
REFERENCE = re.compile(r"^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def _links(page: Path) -> list[str]:
    text = re.sub(r"(`+).+?\1", lambda code: "" if "](" in code[0] else code[0], prose(page))
    return [*INLINE.findall(text), *REFERENCE.findall(text)]


def _fault(page: Path, link: str) -> str | None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.is_file():
        return f"`{link}`: no such file (a link to a folder leads nowhere on the site)"
    if anchor and anchor not in anchors(target):
        return f"`{link}`: `{title(target)}` has no such heading"
    return None


@pytest.mark.parametrize("page", [pytest.param(page, id=title(page)) for page in PAGES])
def test_links_lead_to_files_and_headings(page: Path) -> None:
    own = [link for link in _links(page) if not re.match(r"(https?|mailto):", link)]
    assert [fault for link in own if (fault := _fault(page, link))] == []


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    readme = ROOT / "README.md"
    assert _fault(readme, "docs/running.md#exit-codes") is None
    assert "no such heading" in str(_fault(readme, "docs/running.md#exit-cods"))
    assert "no such file" in str(_fault(readme, "docs/runing.md"))
    assert "no such file" in str(_fault(readme, "examples"))


def test_the_site_lists_every_page_once() -> None:
    listed = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(map(title, PAGES))
