"""A report in a browser: its plots are drawn in both themes, without errors and requests."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_report import CODE, FAILING, RUN, attempt
from tests.docs.browser import Tab, chromium, open_tab
from tests.long_series import write_long_attempt
from tests.support import require, until

pytestmark = pytest.mark.expensive

UNDRAWN = "document.querySelectorAll('.plot:not(:has(svg))').length"
FIGURE = "document.querySelector('figure[aria-label=\"{}\"]')"
PATHS = FIGURE + ".querySelectorAll('svg [aria-roledescription=\"{}\"]').length"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
TICK = "getComputedStyle(document.querySelector('.plot svg .role-axis-label text')).fill"


@dataclass
class Browser:
    tab: Tab

    def open(self, path: Path, *, scheme: str = "light", width: int = 1180) -> None:
        self.tab.show(width=width, scheme=scheme)
        self.tab.requested.clear()
        self.tab.open(path.absolute().as_uri())
        until(lambda: self.tab.run(UNDRAWN) == 0)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    require("vl_convert")
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium on the PATH")
    with open_tab(program, tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield Browser(tab)


@pytest.fixture
def report(sgpu: Shell) -> Path:
    """A run of many ranks over a day that failed after one that had succeeded."""
    sgpu.write("run.yaml", RUN.replace("gpus: 2", "gpus: 16"))
    sgpu.write("train.py", CODE)
    sgpu.done("apply", "-y")
    sgpu.write("train.py", FAILING)
    sgpu.exits(5, "apply", "-y")
    write_long_attempt(attempt(sgpu, number=2), ranks=16)
    sgpu.done("report", "train", "-o", "report.html")
    return sgpu.folder / "report.html"


def test_curve_timeline_and_cause_are_drawn_without_errors_and_requests(
    browser: Browser, report: Path
) -> None:
    tab = browser.tab
    seen = {}
    for scheme in ("light", "dark"):
        browser.open(report, scheme=scheme)
        assert browser.tab.faults == []
        assert tab.requested == [report.as_uri()]
        assert tab.run(PATHS.format("loss", "line mark")) > 0
        assert tab.run(PATHS.format("phases and ranks", "bar")) == 18  # of 16 ranks and two phases
        assert tab.run(PATHS.format("GPU utilisation", "area mark")) > 0
        cause = tab.run("document.querySelector('[aria-label=\"first cause\"]').textContent")
        assert "ValueError: no <luck>" in cause
        assert tab.run("document.querySelectorAll('h2').length") >= 6
        seen[scheme] = (tab.run(BACKGROUND), tab.run(TICK))
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]


def test_a_value_is_shown_where_the_pointer_is(browser: Browser, report: Path) -> None:
    browser.open(report)
    tab = browser.tab
    tab.run(FIGURE.format("loss") + ".scrollIntoView({block: 'center'})")
    place = tab.run(
        f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
        f"({FIGURE.format('loss')}.querySelector('svg').getBoundingClientRect())"
    )
    for moved in (0, 1):
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0] + moved, y=place[1])
    shown = "(document.querySelector('#vg-tooltip-element.visible') || {}).textContent || ''"
    until(lambda: "step" in tab.run(shown))
    assert "loss" in tab.run(shown)


def test_a_narrow_screen_scrolls_down_alone(browser: Browser, report: Path) -> None:
    browser.open(report, width=400)
    assert browser.tab.run("document.scrollingElement.scrollWidth") <= 400


def test_a_printed_page_has_the_plots(browser: Browser, report: Path) -> None:
    browser.open(report)
    tab = browser.tab
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run(BACKGROUND) == "rgb(255, 255, 255)"
    assert len(tab.call("Page.printToPDF", printBackground=True)["data"]) > 20_000
    tab.call("Emulation.setEmulatedMedia", media="")


def test_runs_of_a_sweep_are_lines_through_their_axes(browser: Browser, sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN.replace("args: {lr: 0.1}", "matrix: {lr: [0.1, 0.2, 0.3, 0.4]}"))
    sgpu.write("train.py", CODE)
    sgpu.done("apply", "-y")
    sgpu.done("report", "train", "-o", "report.html")
    browser.open(sgpu.folder / "report.html", scheme="dark")
    assert browser.tab.faults == []
    assert browser.tab.run(PATHS.format("all runs", "line mark")) == 4
