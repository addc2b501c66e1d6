"""What the README shows is what the commands print."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, script

README = ROOT / "README.md"
FAULTS = ROOT / "docs" / "faults.md"
Copied = Callable[[str], Any]  # gives an Example of conftest.py


def _printed() -> list[str]:
    text = README.read_text()
    part = text[text.index("<!-- printed: begin") : text.index("<!-- printed: end")]
    return re.findall(r"```\n(.*?)```", part, flags=re.DOTALL)


def _lasting(text: str) -> str:
    """Without what is true of one moment and one machine alone."""
    text = re.sub(r"ranks use Python [^,]+, `[^`]+`", "ranks use Python", text)
    return re.sub(r"succeeded (just now|\d+ m?s ago)|after [\d.]+ m?s", "<time>", text)


def test_the_readme_shows_what_is_printed(example: Copied) -> None:
    item = example("hello")
    planned, applied, edited, mistaken = map(_lasting, _printed())
    head = "$ sgpu plan run.yaml\n"
    assert planned == head + _lasting(item.sgpu("plan", "run.yaml").stdout)

    done = item.sgpu("apply", "-y", "run.yaml", "--rank", "all")
    told, _, results = applied.partition("\n$ sgpu results hello\n")
    shown = {*_lasting(done.stdout + done.stderr).splitlines()}
    quick = {"hello#1 starting"}  # may be over before anybody looks
    assert {*told.splitlines()} - quick <= shown
    assert results == item.sgpu("results", "hello").stdout

    run = item.folder / "run.yaml"
    run.write_text(run.read_text().replace("greeting: hello", "greeting: good morning"))
    assert edited == head + _lasting(item.sgpu("plan", "run.yaml").stdout)

    lines = run.read_text().replace("gpus: 4", "gpu: 4")
    run.write_text(lines)
    refused = item.sgpu("plan", "run.yaml")
    assert refused.returncode == 1
    assert mistaken == head + refused.stderr


def test_the_picture_shows_the_session_of_the_text() -> None:
    """`scripts/terminal_pictures.py` draws it."""
    picture = (ROOT / "docs" / "images" / "session.svg").read_text()
    _, applied, edited, mistaken = map(_lasting, _printed())
    shown = _lasting("\n".join(script("terminal_pictures").lines(picture)))
    quick = {"hello#1 starting"}
    session = [*applied.partition("\n$ ")[0].splitlines(), *edited.splitlines()]
    session += mistaken.splitlines()
    assert {line for line in session if line} - quick <= {*shown.splitlines()}


def test_the_readme_counts_what_the_table_of_faults_lists() -> None:
    rows = [line.split("|")[1:-1] for line in FAULTS.read_text().splitlines() if line[:2] == "| "]
    faults = [[cell.strip() for cell in row] for row in rows[1:]]
    compared = [row for row in faults if row[6]]
    one_culprit = [row for row in compared if row[2] != "-" and row[0] != "two die together"]
    wrong = [row for row in one_culprit if row[6] != f"rank {row[2]}"]
    left = [row for row in compared if row[8] != "0"]
    text = " ".join(README.read_text().split())
    assert f"lists {len(faults)} faults" in text
    assert f"{len(compared)} of them also ran under torchrun" in text
    assert f"{len(wrong)} reports blamed the wrong rank or none" in text
    assert f"{len(left)} runs left processes behind" in text


@pytest.mark.parametrize(
    "page", [README, *(ROOT / "docs").rglob("*.md")], ids=lambda item: item.name
)
def test_links_to_other_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
