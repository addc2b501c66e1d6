"""A real `sgpu` in a process of its own, as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        loaded: dict[str, Any] = json.loads(self.out)
        assert loaded["v"] == 1
        return loaded


@dataclass(frozen=True)
class Shell:
    folder: Path
    environ: dict[str, str]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sgpu_decl", *arguments],
            cwd=options.pop("cwd", self.folder),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __call__(self, *arguments: str, cwd: Path | None = None) -> Answer:
        with self.start(*arguments, cwd=cwd or self.folder) as process:
            out, err = process.communicate(timeout=60)
        assert "internal error" not in err, err
        return Answer(process.returncode, out, err)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def sgpu(tmp_path: Path) -> Iterator[Shell]:
    """`sgpu(...)` runs one command in an empty project; runs left active are cancelled after."""
    home = tmp_path / "home"
    environ = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_DATA_HOME": str(home / "data"),
        "NO_COLOR": "1",
    }
    project = tmp_path / "project"
    project.mkdir()
    shell = Shell(project, environ)
    yield shell
    if (project / ".sgpu").is_dir():
        shell("cancel", "*")
