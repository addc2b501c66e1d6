"""Names in backticks become links where it is clear what they name."""

import importlib.util
from types import SimpleNamespace

from tests.docs.pages import ROOT
from tests.support import require, some

require("mkdocs")
FIELDS = (
    """<h3 id="resume"><code>resume</code></h3><h3 id="envsecrets"><code>env.secrets</code></h3>"""
)
TEXT = """<p><code>resume</code> <code>resume: auto</code> <code>resume: auto</code>
<code>env.secrets</code> <code>resume:auto</code> <code>other: 1</code></p>"""


def test_a_field_of_one_word_is_linked_where_it_has_a_value() -> None:
    path = ROOT / "scripts" / "linked_names.py"
    spec = some(importlib.util.spec_from_file_location("linked_names", path))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = dict.fromkeys(module.PAGES_OF_NAMES, "")
    texts = {**names, module.FIELDS: FIELDS, "docs/page.md": TEXT}
    pages = {
        source: SimpleNamespace(content=text, url=source.replace(".md", ".html"))
        for source, text in texts.items()
    }
    files = [SimpleNamespace(src_uri=source, page=page) for source, page in pages.items()]
    module.on_env(None, files=SimpleNamespace(documentation_pages=lambda: files))
    fields = '<a class="name" href="reference/fields.html#'
    assert pages["docs/page.md"].content == TEXT.replace(
        "<code>resume: auto</code>", f'{fields}resume"><code>resume: auto</code></a>', 1
    ).replace("<code>env.secrets</code>", f'{fields}envsecrets"><code>env.secrets</code></a>')
