"""The YAML that README and docs show is valid as it stands."""

import os
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FAULTY = {"checks.md", "errors.md"}  # their examples are what the codes are about
WHOLE = {"name": "run.yaml", "project": "sgpu.yml"}  # the first key of a whole file, and its name


def _files() -> list[tuple[str, str, str]]:
    """Page, file name and text of every block that is a whole run or project file."""
    return [
        (page.name, WHOLE[key[0]], block)
        for page in PAGES
        if page.name not in FAULTY
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL)
        if (key := re.findall(r"^(name|project):", block, flags=re.MULTILINE))
    ]


@pytest.mark.parametrize(
    ("name", "text"), [pytest.param(name, text, id=page) for page, name, text in _files()]
)
def test_a_whole_file_of_a_page_is_valid(tmp_path: Path, name: str, text: str) -> None:
    for entrypoint in re.findall(r"entrypoint: (\w+\.py)", text):
        (tmp_path / entrypoint).write_text("def main(**arguments): ...\n")
    (tmp_path / name).write_text(text)
    answer = Shell(tmp_path, dict(os.environ)).here("validate", name)
    assert answer.code == 0, answer.err
