"""Processes that a rank of a call starts find the names of the caller's `__main__`, as they would
without sgpu."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functions.test_kernel import kernel
from tests.support import require

__all__ = ["kernel"]

SCRIPT = """
import enum, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from sgpu_decl import distributed

SCALE = 2

class Kind(enum.Enum):
    A = 1
    B = 2

@dataclass
class Point:
    @dataclass
    class Deep:
        x: int
    kind: Kind
    deep: "Point.Deep"

class Given:  # nothing that travels with the function names it
    def __init__(self, n): self.n = n
    def __eq__(self, other): return type(self) is type(other) and self.n == other.n

def scaled(x): return SCALE * x
def double(x): return scaled(x)
def made(x): return Point(Kind.B, Point.Deep(x))
def known(point): return isinstance(point, Point) and point.kind is Kind.B
def echo(x): return x
def rank(x): return x  # which `_air.py` has, too

@distributed(gpus=1, gpu_type="CPU")
def work(method, given):
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        points = pool.map(made, [1])
        out = [pool.map(double, [1, 2]), points, pool.map(known, points), pool.map(echo, [given])]
        out.append(pool.map(rank, [4]))
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        out.append(list(pool.map(double, [3])))
    return out

def check(method):
    (out,) = work.distributed(method, Given(3))
    assert out == [[2, 4], [Point(Kind.B, Point.Deep(1))], [True], [Given(3)], [4], [6]], out
    assert type(out[1][0]) is Point and type(out[3][0]) is Given
    print("ok", method)
"""
MAIN = """
if __name__ == "__main__":
    for method in sys.argv[1:]:
        check(method)
"""
LIBRARIES = """
import torch
from joblib import Parallel, delayed
from torch.utils.data import DataLoader, Dataset
from sgpu_decl import distributed

class Marks(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return Mark(index)

class Mark:
    def __init__(self, index): self.index = index

def collate(marks): return marks
def double(x): return 2 * x

@distributed(gpus=1, gpu_type="CPU")
def load():
    data = DataLoader(
        Marks(), batch_size=2, num_workers=2, multiprocessing_context="spawn", collate_fn=collate
    )
    doubled = Parallel(n_jobs=2)(delayed(double)(index) for index in (1, 2))
    return [mark.index for marks in data for mark in marks], doubled

if __name__ == "__main__":
    assert load.distributed() == [([0, 1, 2, 3], [2, 4])]
"""


def run(*argv: str | Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *argv], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_forked_processes_find_the_names_of_a_script(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT + MAIN)
    assert run("train.py", "fork") == ["ok fork"]


@pytest.mark.expensive
@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_spawned_processes_find_the_names_of_the_callers_main(project: Path, module: bool) -> None:
    (project / "jobs").mkdir()
    (project / "jobs/__init__.py").touch()
    (project / "jobs/size.py").write_text("SCALE = 2\n")
    source = SCRIPT.replace("SCALE = 2", "from .size import SCALE") if module else SCRIPT
    (project / "jobs/train.py").write_text(source + MAIN)

    started = ("-m", "jobs.train") if module else ("jobs/train.py",)

    assert run(*started, "spawn", "forkserver") == ["ok spawn", "ok forkserver"]


@pytest.mark.expensive
def test_processes_find_the_names_of_the_cells_of_a_notebook(kernel: Any) -> None:
    kernel.execute(SCRIPT)
    for method in ("fork", "spawn", "forkserver"):
        out, _, _ = kernel.execute(f"check({method!r})")
        assert f"ok {method}" in out, kernel.traceback


@pytest.mark.expensive
@pytest.mark.torch
def test_data_loaders_and_joblib_find_the_names_of_a_script(project: Path) -> None:
    require("torch")
    require("joblib")
    (project / "train.py").write_text(LIBRARIES)
    run("train.py")
