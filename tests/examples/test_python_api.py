"""The example of docs/python-api.md runs, and prints what the page says."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-api.md"
Copied = Callable[[str], Any]  # gives an Example of conftest.py


def test_the_example_prints_what_the_page_says(example: Copied) -> None:
    text = PAGE.read_text()
    part = text[text.index("<!-- example: begin") : text.index("<!-- example: end")]
    (script, output) = re.findall(r"```(?:python)?\n(.*?)```", part, flags=re.DOTALL)
    item = example("hello")
    file = item.folder / "run.yaml"
    file.write_text(file.read_text().replace("gpus: 4", "gpus: 2"))
    done = run(
        [sys.executable, "-c", script],
        cwd=item.folder, env={**os.environ, **item.environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
