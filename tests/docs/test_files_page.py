"""The page of files names what a run leaves in the project and in the user's folders."""

import os
import re
from pathlib import Path

from tests.cli.conftest import Shell
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "files.md").read_text()
RUN = """\
name: train
gpus: 2
type: CPU
entrypoint: train.py:main
parameters: {lr: 0.1}
mlflow: {enabled: false}
"""
PROGRAM = """\
import os
def main():
    open(os.path.join(os.environ["SGPU_OUTPUT_DIR"], "kept"), "w").close()
"""


def _named(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_the_page_names_the_files_of_a_run(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.yaml").write_text(RUN)
    (project / "train.py").write_text(PROGRAM)
    homes = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "CACHE", "STATE")}
    Shell(project, {**os.environ, **homes}).done("apply", "-y")

    attempt = project / ".sgpu/default/runs/train/1"
    written = {
        *_named(project / ".sgpu"),
        *_named(project / ".sgpu/default"),
        *_named(attempt),
        *_named(attempt / "ranks/0"),
    }
    written |= _named(tmp_path / "DATA/sgpu/store")
    if (caches := tmp_path / "CACHE/sgpu").is_dir():  # small code needs no hashes of files
        written |= _named(caches)
    assert {"code", "state.db", "objects"} <= written
    names = {part for code in re.findall(r"`([^`]+)`", PAGE) for part in code.split("/")}
    assert written - names - {"0", "default", "lock"} == set()
