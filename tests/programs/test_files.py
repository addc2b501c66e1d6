"""Programs that find their files by relative paths, and write into the folder they work in."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LAUNCHED = Path(__file__).parent / "launched"


def alone(folder: Path, *words: str) -> str:
    """What the program prints where it is started by hand."""
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def tokens(project: Callable[..., Any]) -> Any:
    there = project("tokens.py")
    data = there.folder / "data/shakespeare"
    data.mkdir(parents=True)
    for name, count in (("train", 64), ("val", 16)):
        np.arange(count, dtype=np.uint16).tofile(data / f"{name}.bin")
    (data / "meta.txt").write_text("65\n")
    (there.folder / ".gitignore").write_text("*.bin\nout/\n")  # nanoGPT's own has `*.bin` too
    return there


def test_a_missing_file_that_git_ignores_is_reported_with_the_rule(tokens: Any) -> None:
    failed = tokens.apply("entrypoint: tokens.py")
    assert failed.returncode == 5
    assert "FileNotFoundError" in failed.stderr
    assert "is in the project: excluded by line 1 of `.gitignore` (`*.bin`)" in failed.stderr
    assert (
        "`code: {include: [data/shakespeare/train.bin]}` makes it part of the code" in failed.stderr
    )


@pytest.mark.parametrize("way", ["include: ['*.bin']", "link: [data]"])
def test_data_that_is_taken_along_or_linked_is_read(tokens: Any, way: str) -> None:
    expected = alone(tokens.folder, "tokens.py")
    said = tokens.apply("entrypoint: tokens.py", f"code: {{{way}}}")
    assert said.returncode == 0, said.stderr
    assert tokens.printed(0) == tokens.printed(1) == expected
    assert "wrote 2 files into its working folder (`out/ckpt-0.pt`, `out/ckpt-1.pt`)" in said.stderr


@pytest.mark.skipif(find_spec("hydra") is None, reason="Hydra is missing")
def test_hydra_finds_its_configuration_and_its_words(project: Callable[..., Any]) -> None:
    there = project("configured.py", "conf")
    expected = alone(there.folder, "configured.py", "lr=0.5", "model.layers=3")
    said = there.apply("entrypoint: configured.py", "args: [lr=0.5, model.layers=3]")
    assert said.returncode == 0, said.stderr
    assert there.printed(0) == there.printed(1) == expected
    assert "lr 0.5 layers 3" in expected
    assert "output outputs" in expected
    assert "into its working folder (`outputs/" in said.stderr
