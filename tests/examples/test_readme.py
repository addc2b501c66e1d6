"""What the README shows is what the commands print."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[2] / "README.md"
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
    it = example("hello")
    planned, applied, edited, mistaken = map(_lasting, _printed())
    head = "$ sgpu plan run.yaml\n"
    assert planned == head + _lasting(it.sgpu("plan", "run.yaml").stdout)

    done = it.sgpu("apply", "-y", "run.yaml", "--logs", "all")
    told, _, results = applied.partition("\n$ sgpu results hello\n")
    shown = {*_lasting(done.stdout + done.stderr).splitlines()}
    quick = {"hello#1 starting"}  # may be over before anybody looks
    assert {*told.splitlines()} - quick <= shown
    assert results == it.sgpu("results", "hello").stdout

    run = it.folder / "run.yaml"
    run.write_text(run.read_text().replace("greeting: hello", "greeting: good morning"))
    assert edited == head + _lasting(it.sgpu("plan", "run.yaml").stdout)

    lines = run.read_text().replace("gpus: 4", "gpu: 4")
    run.write_text(lines)
    refused = it.sgpu("plan", "run.yaml")
    assert refused.returncode == 1
    assert mistaken == head + refused.stderr
