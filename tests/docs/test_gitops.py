"""The project of docs/gitops.md is valid, and gives the answer that the page shows."""

import os
import re
from pathlib import Path

from tests.cli.conftest import Shell
from tests.docs.pages import PAGES, title

FILE = re.compile(r'```yaml title="([^"]+)"\n(.*?)```', re.DOTALL)


def test_the_files_of_the_page_are_a_project(tmp_path: Path) -> None:
    (page,) = (page for page in PAGES if title(page) == "docs/gitops.md")
    text = page.read_text()
    files = dict(FILE.findall(text))
    for path, content in {
        **files,
        "environments.yml": "environments: {gpu: {python: 3.11}}\n",
        "train.py": "def main(lr): ...\n",
        "eval/score.py": "def main(): ...\n",
    }.items():
        assert path in text
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    shell = Shell(tmp_path, dict(os.environ))
    assert f"$ sgpu validate\n{shell.done('validate').out}" in text
    shell.done("validate", "eval/run.yml")
