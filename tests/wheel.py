"""The wheel of this checkout, and environments that it is installed in."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["build_wheel", "install"]

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 300  # seconds


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a copy of the checkout, which is deleted, so that nothing can use it."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=_left)
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"))
    _python(*build, cwd=source)
    shutil.rmtree(source)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path, *options: str) -> Path:
    """Make an environment, install the wheel there, and return its folder of programs."""
    venv.create(environment)
    python = environment / "bin" / "python"
    pip = ("-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile")
    _python(*pip, *options, str(wheel), cwd=environment)
    return python.parent


def _left(folder: str, names: list[str]) -> list[str]:
    """Of the checkout, what no wheel is made of; the example of a repository has hidden files."""
    top = Path(folder) == ROOT
    return [name for name in names if name in ("__pycache__", ".sgpu", "tests")
            or (top and name.startswith("."))]  # fmt: skip


def _python(*words: str, cwd: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environ, capture_output=True, text=True,
        timeout=LONGEST, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
