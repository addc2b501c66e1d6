"""Small environments: the interpreter of the tests, and packages of a few bytes."""

import os
import py_compile
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from sgpu_decl.environments.captured import stat_cache
from sgpu_decl.environments.captured.capture import Captured, capture
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.model.step_progress import Progress, Quiet

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/python{MINOR}/site-packages"


@dataclass(frozen=True)
class Venv:
    """A virtual environment without pip. `cache` is where its digests are remembered."""

    path: Path
    cache: Path

    @classmethod
    def make(
        cls, path: Path, cache: Path, python: str = sys.executable, minor: str = MINOR
    ) -> Self:
        base = os.path.realpath(python)
        (path / "bin").mkdir(parents=True)
        (path / "bin/python").symlink_to(base)
        (path / f"lib/python{minor}/site-packages").mkdir(parents=True)
        (path / "pyvenv.cfg").write_text(
            f"home = {os.path.dirname(base)}\ninclude-system-site-packages = false\n"
        )
        return cls(path, cache)

    @property
    def python(self) -> str:
        return str(self.path / "bin/python")

    @property
    def site(self) -> Path:
        (found,) = self.path.glob("lib/python*/site-packages")
        return found

    def write(self, files: Mapping[str, str]) -> None:
        """Files below the site."""
        for name, text in files.items():
            path = self.site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def install(
        self, name: str, version: str = "1.0", files: Mapping[str, str] | None = None
    ) -> None:
        """A package as an installer leaves it, with a command of its own."""
        info = f"{name}-{version}.dist-info"
        files = {f"{name}/__init__.py": f"VERSION = {version!r}\n", **(files or {})}
        command = self.path / "bin" / name
        command.write_text(f"#!{self.python}\nimport {name}; print({name}.VERSION)\n")
        command.chmod(0o755)
        listed = [*files, f"../../../bin/{name}", f"{info}/METADATA", f"{info}/INSTALLER"]
        record = "".join(f"{path},sha256=x,1\n" for path in listed) + f"{info}/RECORD,,\n"
        self.write(
            {
                **files,
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
                f"{info}/INSTALLER": "pip\n",
                f"{info}/RECORD": record,
            }
        )

    def compile(self) -> None:
        for source in self.site.rglob("*.py"):
            py_compile.compile(str(source), doraise=True)

    def look(self, progress: Progress | None = None) -> tuple[Captured | None, dict[str, str]]:
        """Capture it; return what was said by code."""
        captured, findings = capture(self.python, progress=progress or Quiet(), cache=self.cache)
        return captured, {finding.code: finding.summary for finding in findings}

    def taken(self) -> Captured:
        captured, said = self.look()
        assert said == {}
        assert captured is not None
        return captured

    def inside(self, captured: Captured | None) -> dict[str, str]:
        """Kinds of the captured files of the first site, by path below it."""
        assert captured is not None
        start = captured.manifest.sites[0] + "/"
        files = captured.manifest.files
        return {
            file.path.removeprefix(start): file.kind
            for file in files
            if file.path.startswith(start)
        }


@pytest.fixture
def make_venv(tmp_path: Path) -> Callable[..., Venv]:
    return lambda name="venv", **more: Venv.make(tmp_path / name, tmp_path / "cache", **more)


@pytest.fixture
def venv(make_venv: Callable[..., Venv]) -> Venv:
    return make_venv()


@pytest.fixture
def remembers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test are young, and what is young is not remembered."""
    monkeypatch.setattr(stat_cache, "YOUNG", 0)


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(tmp_path / "store")
