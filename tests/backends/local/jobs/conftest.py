"""A project with a pipeline that is kept on this machine."""

import os
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.maintenance.project_jobs import ProjectJobs
from sgpu_decl.model.job import StartedJob
from tests.cli.conftest import Shell
from tests.support import until

PROJECT = """\
project: {name: shop}
runs:
  train: {gpus: 2, type: CPU, entrypoint: train.py:main, mlflow: {enabled: false}, grace: 500ms}
jobs:
  nightly:
    parameters: {day: today, n: "1"}
    tasks:
      prepare: {python: steps/prepare.py, args: ["${job.parameters.day}"]}
      train: {run: train, after: [prepare]}
      tidy: {python: tidy.py, after: [train], if: all_done}
    backend: local
"""
FILES = {
    "sgpu.yml": PROJECT,
    "steps/prepare.py": "import sys\nfrom names import name\nprint(name, sys.argv[1])\n",
    "steps/names.py": "name = 'for'\n",
    "train.py": (
        "import os\n"
        "def main():\n"
        "    print('rank', os.environ['RANK'], 'works')\n"
        "    return int(os.environ['RANK'])\n"
    ),
    "tidy.py": "print('tidied up')\n",
}


class Shop(Shell):
    def replace(self, old: str, new: str) -> None:
        """Change a text of the file."""
        text = (self.folder / "sgpu.yml").read_text()
        assert old in text
        (self.folder / "sgpu.yml").write_text(text.replace(old, new))

    @property
    def jobs(self) -> ProjectJobs:
        return Session.open(Location(project=self.folder)).jobs

    def started(self, *words: str) -> dict[str, Any]:
        """What `start --wait` says as JSON."""
        return self("start", "nightly", *words, "--wait", "-o", "json").json["data"]


def ended(shop: Shop, started: StartedJob) -> StartedJob:
    """A launch once it has ended."""
    until(lambda: not shop.jobs.look_again(started).launch.state.active)
    return shop.jobs.look_again(started)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    folder = tmp_path / "shop"
    folder.mkdir()
    made = Shop(folder, dict(os.environ))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return made
