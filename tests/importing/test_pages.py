"""The examples of other tools on the pages for those who come from them."""

import pytest

from sgpu_decl.importing.translation import Fate
from tests.docs.pages import ROOT, blocks
from tests.importing.conftest import Import

LOST = {"air": set[str](), "skypilot": set[str](), "dstack": set[str]()}


@pytest.mark.parametrize("page", sorted(LOST))
def test_an_example_of_another_tool_can_be_imported(imported: Import, page: str) -> None:
    texts = [
        text
        for language, text in blocks(ROOT / "docs" / "coming-from" / f"{page}.md")
        if language == "text"
    ]
    found = imported(texts[0])
    assert found.file.tool == page
    assert found.of(Fate.LOST) == LOST[page]
