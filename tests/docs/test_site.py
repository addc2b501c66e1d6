"""The site, built and walked in a browser: links, search, two colour schemes, narrow screens."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

from tests.docs.browser import Tab, chromium, open_tab
from tests.docs.pages import ROOT
from tests.support import until

pytestmark = pytest.mark.expensive

NARROW = 400
LOOK = """({
    links: [...document.querySelectorAll('a[href]')].map(link => link.href),
    ids: [...document.querySelectorAll('[id]')].map(element => element.id),
    wide: document.scrollingElement.scrollWidth,
})"""
SCHEME = "document.body.getAttribute('data-md-color-scheme')"
BRIGHTNESS = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[1]"
FOCUS_SEARCH = "document.querySelector('[data-md-component=search-query]').focus()"
FOUND = """[...document.querySelectorAll('.md-search-result__link')].filter(link => {
    const box = link.getBoundingClientRect();
    const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return top !== null && top.closest('a') === link;
}).map(link => link.href)"""
"""The results that a person can click without scrolling."""
SHOWN_IN_NAVIGATION = """[...document.querySelectorAll('.md-nav--primary a[href]')]
    .filter(link => link.checkVisibility({opacityProperty: true, visibilityProperty: true}))
    .map(link => link.href)"""


@dataclass(frozen=True)
class Site:
    folder: Path
    url: str

    def pages(self) -> list[str]:
        return sorted(str(page.relative_to(self.folder)) for page in self.folder.rglob("*.html"))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, str(ROOT / "scripts" / "build_site.py"), str(folder)]
    subprocess.run(build, check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield Site(folder, f"http://127.0.0.1:{server.server_address[1]}/")
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium on the PATH")
    with open_tab(program, tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


@pytest.fixture(scope="module")
def seen(site: Site, tab: Tab) -> dict[str, dict[str, Any]]:
    """What a narrow screen shows of each page, by URL."""
    tab.show(width=NARROW)
    tab.call("Network.setBlockedURLs", urls=["*/search_index.json"])  # half of the time of a page
    found = {}
    for page in site.pages():
        tab.open(site.url + page)
        found[site.url + page] = tab.run(LOOK)
    tab.call("Network.setBlockedURLs", urls=[])
    return found


def test_no_link_of_a_page_is_dead(site: Site, seen: dict[str, dict[str, Any]]) -> None:
    assert len(seen) > 40
    dead = set()
    for page, look in seen.items():
        for link in look["links"]:
            url, anchor = urldefrag(link)
            if not url.startswith(site.url):
                continue
            url = f"{url}index.html" if url.endswith("/") else url
            there = (site.folder / unquote(url.removeprefix(site.url))).is_file()
            if not there or (anchor and unquote(anchor) not in seen[url]["ids"]):
                dead.add((page.removeprefix(site.url), link.removeprefix(site.url)))
    assert dead == set()


def test_no_page_scrolls_sideways_on_a_narrow_screen(seen: dict[str, dict[str, Any]]) -> None:
    assert {page: look["wide"] for page, look in seen.items() if look["wide"] > NARROW} == {}


def test_the_site_asks_no_other_host(site: Site, tab: Tab, seen: dict[str, dict[str, Any]]) -> None:
    assert seen
    own = (site.url, "data:", "blob:", "about:")
    assert [url for url in tab.requested if not url.startswith(own)] == []


def _search(site: Site, tab: Tab, words: str) -> None:
    tab.show(width=1200)
    tab.open(f"{site.url}index.html")
    tab.run(FOCUS_SEARCH)
    tab.call("Input.insertText", text=words)


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("progress_timeout", "docs/reference/fields.html"),
        ("SGPU_OUTPUT_DIR", "docs/reference/variables.html"),
        ("detailed-exitcode", "docs/reference/commands.html"),
    ],
)
def test_the_search_finds_a_name(site: Site, tab: Tab, word: str, page: str) -> None:
    _search(site, tab, word)
    until(lambda: any(page in link for link in tab.run(FOUND)))


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("--rerun", "docs/how-to/relaunch.html"),
        ("what counts as changed code", "docs/how-to/relaunch.html"),
        ("rename a run", "docs/faq.html"),
        ("stop a run", "docs/faq.html"),
        ("delete old runs", "docs/how-to/clean-up.html"),
        ("tensorboard", "docs/how-to/tensorboard.html"),
        ("wandb", "docs/how-to/wandb.html"),
        ("slack", "docs/how-to/notifications.html"),
        ("profiler", "docs/how-to/profile-a-rank.html"),
        ("hyperparameter search", "docs/how-to/optuna.html"),
        ("best checkpoint", "docs/how-to/best-checkpoint.html"),
        ("VS Code", "docs/how-to/vscode.html"),
        ("two users on one box", "docs/how-to/share-a-box.html"),
        ("from my laptop", "docs/how-to/laptop-and-box.html"),
    ],
)
def test_the_first_result_answers_a_question(site: Site, tab: Tab, words: str, page: str) -> None:
    _search(site, tab, words)
    until(lambda: any(page in link for link in tab.run(FOUND)[:1]))


@pytest.mark.parametrize(("scheme", "name"), [("light", "default"), ("dark", "slate")])
def test_the_site_has_the_colours_of_the_system(
    site: Site, tab: Tab, scheme: str, name: str
) -> None:
    tab.show(width=1200, scheme=scheme)
    tab.open(f"{site.url}docs/running.html")
    assert tab.run(SCHEME) == name
    assert (tab.run(BRIGHTNESS) > 128) is (scheme == "light")


def test_the_navigation_is_open(site: Site, tab: Tab) -> None:
    tab.show(width=1400)
    tab.open(f"{site.url}index.html")
    shown = tab.run(SHOWN_IN_NAVIGATION)
    for page in ("docs/how-to/vscode.html", "docs/running.html", "examples/hello/index.html"):
        assert site.url + page in shown


def test_the_first_page_names_three_ways_in(site: Site) -> None:
    page = (site.folder / "index.html").read_text()
    (ways,) = re.findall(r'<h2 id="three-ways-in".*?</table>', page, re.DOTALL)
    assert len(re.findall(r"<tr>", ways)) == 4
    assert {"docs/tutorial.html", "docs/gitops.html", "docs/how-to/notebooks.html"} <= set(
        re.findall(r'href="([^"#]+)"', ways)
    )


def test_each_family_of_codes_has_a_page(site: Site) -> None:
    page = (site.folder / "docs" / "troubleshooting.html").read_text()
    linked = dict(re.findall(r'<a class="name" href="([^"]+)"><code>([^<]+)</code>', page))
    assert linked["codes/fields.html#unknown_key"] == "unknown_key"
    assert linked["codes/states.html#state_locked"] == "state_locked"
    assert (site.folder / "docs" / "codes" / "lock-files.html").is_file()


def test_names_in_backticks_lead_to_the_reference(site: Site) -> None:
    page = (site.folder / "docs" / "running.html").read_text()
    linked = dict(re.findall(r'<a class="name" href="([^"]+)"><code>([^<]+)</code>', page))
    assert linked["reference/variables.html#sgpu_output_dir"] == "SGPU_OUTPUT_DIR"
    assert linked["reference/commands.html#sgpu-fetch"] == "sgpu fetch NAME"
    assert linked["reference/fields.html#envsecrets"] == "env.secrets"
    assert page.count('href="reference/variables.html#sgpu_output_dir"') == 1
