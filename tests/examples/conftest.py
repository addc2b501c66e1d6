"""An example as a user has it: copied to a folder of its own, and a `sgpu` that runs there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.examples.gitops_team import place, team
from tests.support import check_golden, require

__all__ = ["place", "team"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHORT = ("--set", "args.epochs=2", "--set", "args.samples=1024")
_HOST = re.compile(r"http://127\.0\.0\.1:\d+")
_USER = re.compile(r"user-[0-9a-f]{8}@example\.com")


@dataclass(frozen=True)
class Example:
    """`source` is the folder in the checkout, `folder` the copy."""

    name: str
    source: Path
    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        homes = {name: str(self.folder.parent / name) for name in ("data", "cache", "state")}
        return {f"XDG_{name.upper()}_HOME": folder for name, folder in homes.items()}

    def sgpu(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "sgpu_decl", *words],
            cwd=self.folder,
            env={**os.environ, **self.environ, "NO_COLOR": "1", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def data(self, *words: str) -> Any:
        """The answer of a command that runs in this process."""
        answer = Shell(self.folder, {**os.environ, **self.environ}).done(*words, "-o", "json")
        return answer.json["data"]

    def install(self, version: str) -> None:
        """The package of the example that has an environment."""
        python = self.folder / ".venv/bin/python"
        subprocess.run([python, self.folder / "install.py", version], check=True)

    def golden(self, name: str, text: str) -> None:
        """Compare with a file beside the example; `SGPU_REGEN=1` writes it anew."""
        text = _HOST.sub("https://example.cloud.databricks.com", text)
        check_golden(self.source / name, _USER.sub("me@example.com", text))


def copy(name: str, to: Path) -> Example:
    """The example without what was left by whoever tried it in the checkout."""
    left = shutil.ignore_patterns(".sgpu", "__pycache__", ".venv", "go")
    return Example(name, EXAMPLES / name, shutil.copytree(EXAMPLES / name, to / name, ignore=left))


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Example]:
    def copied(name: str) -> Example:
        made = copy(name, tmp_path)
        if name == "environment":
            venv = [sys.executable, "-m", "venv", "--without-pip", str(made.folder / ".venv")]
            subprocess.run(venv, check=True)
            made.install("1.0")
        return made

    return copied


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A workspace that executes, here; the environment says so to the SDK."""
    require("databricks.sdk")
    from sgpu_decl.testing.workspace import WorkspaceServer

    # Nodes see the GPUs of this machine, and would share them.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with WorkspaceServer(tmp_path / "workspace") as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.token())
        monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.delenv("DATABRICKS_CONFIG_PROFILE", raising=False)
        yield server


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The FSDP2 training, applied on this machine; a short one, as `SHORT` says."""
    for package in ("torch", "mlflow"):
        require(package)
    made = copy("fsdp", tmp_path_factory.mktemp("trained"))
    applied = made.sgpu("apply", "-y", *SHORT, "run.yaml")
    assert applied.returncode == 0, applied.stderr
    return made


@pytest.fixture
def short() -> tuple[str, ...]:
    """The options with which `trained` was applied."""
    return SHORT
