"""The pictures of the pages: they show what commands print, and say in words what they show."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, prose, script, title
from tests.support import require

IMAGES = ROOT / "docs" / "images"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


def _is_drawn_as_printed(name: str, folder: Path) -> None:
    """`scripts/terminal_pictures.py NAME` draws it anew."""
    pictures = script("terminal_pictures")
    kept = (IMAGES / f"{name}.svg").read_text()
    assert pictures.lines(kept) == pictures.lines(pictures.drawn(name, folder))


def test_the_picture_of_the_session_shows_what_is_printed(tmp_path: Path) -> None:
    """Lines of ranks come in any order, and a state may be over before anybody looks."""
    pictures = script("terminal_pictures")
    kept = pictures.lines((IMAGES / "session.svg").read_text())
    drawn = pictures.lines(pictures.drawn("session", tmp_path))
    quick = re.compile(r"hello#1 (starting|running|stopping)")
    before, after = (
        sorted(line for line in lines if not quick.fullmatch(line)) for lines in (kept, drawn)
    )
    assert before == after


def test_the_picture_of_the_first_plan_shows_what_is_printed(tmp_path: Path) -> None:
    _is_drawn_as_printed("plan-cpu", tmp_path)


def test_the_picture_of_the_plan_on_a_box_shows_what_is_printed(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    _is_drawn_as_printed("plan-gpus", tmp_path)


def test_the_picture_of_a_watched_run_shows_what_is_drawn(tmp_path: Path) -> None:
    _is_drawn_as_printed("top", tmp_path)


@pytest.mark.ray
@pytest.mark.expensive
def test_the_picture_of_the_plan_on_ray_shows_what_is_printed(tmp_path: Path) -> None:
    _is_drawn_as_printed("plan-ray", tmp_path)


@pytest.mark.expensive
def test_the_picture_of_the_plan_on_databricks_shows_what_is_printed(tmp_path: Path) -> None:
    require("databricks.sdk")
    _is_drawn_as_printed("plan-databricks", tmp_path)


def test_every_picture_is_drawn_by_the_script_and_shown_by_a_page() -> None:
    drawn = {f"{name}.svg" for name in script("terminal_pictures").PICTURES}
    drawn.add("report.png")  # by `scripts/report_picture.py`, of a browser
    shown = {Path(target).name for page in PAGES for _, target in SHOWN.findall(prose(page))}
    assert drawn == {path.name for path in IMAGES.iterdir()} == shown


def test_every_picture_has_words_for_those_who_do_not_see_it() -> None:
    silent = [
        (title(page), target)
        for page in PAGES
        for words, target in SHOWN.findall(prose(page))
        if len(words.split()) < 5
    ]
    assert silent == []
