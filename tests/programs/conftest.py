"""A program of somebody else's, launched as a user would: a run file and `sgpu apply`."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LAUNCHED = Path(__file__).parent / "launched"
RUN = """\
name: program
gpus: 2
type: CPU
grace: 1s
timeout: 4m
mlflow: {enabled: false}
"""


@dataclass(frozen=True)
class Project:
    folder: Path

    def launch(self, *lines: str) -> list[Any]:
        """Apply a run of two ranks that has these lines too; return what its ranks returned."""
        done = self.apply(*lines)
        assert done.returncode == 0, done.stdout + done.stderr
        answer = json.loads(self._sgpu("results", "program", "-o", "json").stdout)
        return [result["value"] for result in answer["data"]["results"]]

    def apply(
        self, *lines: str, tracked: bool = False, gpus: int = 2
    ) -> "subprocess.CompletedProcess[str]":
        run = RUN.replace("mlflow: {enabled: false}\n", "") if tracked else RUN
        run = run.replace("gpus: 2", f"gpus: {gpus}")
        (self.folder / "run.yaml").write_text(run + "\n".join(lines) + "\n")
        return self._sgpu("apply", "-y", "run.yaml")

    def status(self) -> Any:
        (run,) = json.loads(self._sgpu("status", "-o", "json").stdout)["data"]["runs"]
        return run

    def printed(self, rank: int) -> str:
        return self._sgpu("logs", "program", "--rank", str(rank)).stdout

    def _sgpu(self, *words: str) -> "subprocess.CompletedProcess[str]":
        homes = {f"XDG_{name}_HOME": str(self.folder.parent / name) for name in HOMES}
        return subprocess.run(
            [sys.executable, "-m", "sgpu_decl", *words],
            cwd=self.folder,
            env={**os.environ, **homes, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


HOMES = ("DATA", "CACHE", "STATE")


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    """Make a project of files that lie in `launched/`."""

    def made(*names: str) -> Project:
        folder = tmp_path / "project"
        folder.mkdir()
        for name in names:
            if (LAUNCHED / name).is_dir():
                shutil.copytree(LAUNCHED / name, folder / name)
            else:
                shutil.copy(LAUNCHED / name, folder)
        return Project(folder)

    return made
