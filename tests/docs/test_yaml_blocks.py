"""The YAML of the pages is valid: whole files as they stand, parts as parts of a run or a project.

A block with a title (```yaml title="profile.yaml") is another file.
"""

import os
import re
from pathlib import Path

import pytest

from sgpu_decl.config.project import ProjectFile
from tests.cli.conftest import Shell
from tests.docs.pages import PAGES, blocks, title

ELSEWHERE = {"docs/reference/fields.md"}  # test_reference.py reads its examples
RUN = {"name": "train", "gpus": "8", "type": "A10", "entrypoint": "train.py:main"}
"""What a part of a run file needs beside itself."""


def _blocks() -> list[tuple[str, str]]:
    return [
        (f"{title(page)}-{number}", text)
        for page in PAGES
        if title(page) not in ELSEWHERE
        for number, (language, text) in enumerate(blocks(page))
        if language == "yaml"
    ]


def _whole(text: str) -> tuple[str, str]:
    """The name and the text of the file that a block is, or is a part of."""
    keys = set(re.findall(r"^(\w+):", text, flags=re.MULTILINE))
    in_project = {*ProjectFile.model_fields, "variables", "targets"}
    if keys <= in_project:
        return "sgpu.yml", text if "project" in keys else f"project: {{name: example}}\n{text}"
    given = keys | ({"entrypoint"} if "command" in keys else set())
    needed = "".join(f"{key}: {value}\n" for key, value in RUN.items() if key not in given)
    return "run.yaml", f"{needed}{text}"


@pytest.mark.parametrize("text", [pytest.param(text, id=page) for page, text in _blocks()])
def test_yaml_of_a_page_is_valid(tmp_path: Path, text: str) -> None:
    name, whole = _whole(text)
    for root in (".", *re.findall(r"^  root: (\w+)", whole, flags=re.MULTILINE)):
        for entrypoint in re.findall(r"entrypoint: ([\w/]+\.py)", whole):
            file = tmp_path / root / entrypoint
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("def main(**arguments): ...\n")
    (tmp_path / name).write_text(whole)
    Shell(tmp_path, dict(os.environ)).done("validate", name)
