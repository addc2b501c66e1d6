"""Decorated functions beside bare Python processes that unpickle and run them, and later calls
beside joblib's pool of processes that stay.

The caller is one process that goes on, as a notebook's kernel does: what it imports once is not
part of a call. Rounds alternate; each side's time is what the caller waits.
"""

import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import cloudpickle
import numpy as np
from measuring import PATIENCE, Row

from sgpu_decl import distributed

__all__ = ["calls"]

RANKS = 2
LARGE = 100_000_000  # bytes
# As cheap as two processes can do it: no file is opened but the pickle.
BARE = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))()"
READ = "import sys; data = open(sys.argv[1], 'rb').read()"


def calls(scratch: Path, repeats: int) -> Iterator[Row]:
    folder = scratch / "calls"
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    os.environ["SGPU_PROJECT"] = str(folder)
    # A tracker imports MLflow beside the next rounds, and outlives the last one.
    project = "project: {name: calls}\nfunctions: {mlflow: {enabled: false}}\n"
    (folder / "sgpu.yml").write_text(project)
    try:
        yield _empty(folder, repeats)
        yield _large(folder, max(3, repeats // 3))
        yield from _warm(folder, project, repeats)
    finally:
        os.chdir(before)
        del os.environ["SGPU_PROJECT"]


def _empty(folder: Path, repeats: int) -> Row:
    @distributed(gpus=RANKS, gpu_type="CPU")
    def empty() -> None: ...

    path = folder / "empty.pkl"
    path.write_bytes(cloudpickle.dumps(empty.func, protocol=pickle.HIGHEST_PROTOCOL))
    ours, bare = _alternating(
        lambda: empty.distributed(), lambda: _processes([sys.executable, "-c", BARE, path]), repeats
    )
    return _row(f"call of an empty function, {RANKS} ranks", ours, "bare processes", bare, 3)


def _large(folder: Path, repeats: int) -> Row:
    array = np.random.default_rng(0).integers(0, 255, LARGE, dtype=np.uint8)

    @distributed(gpus=RANKS, gpu_type="CPU")
    def touch() -> int:
        return int(array[::4096].sum())  # every page; adding all bytes up would be computing

    @distributed(gpus=RANKS, gpu_type="CPU")
    def empty() -> None:
        np.zeros(1)

    path = folder / "array.bin"

    def copy() -> None:
        with path.open("wb") as file:  # to the disk, as the attempt's folder is before ranks start
            file.write(array.data)
            file.flush()
            os.fsync(file.fileno())
        _processes([sys.executable, "-c", READ, path])

    def with_array() -> None:
        touch.distributed()

    ours, bare = _alternating(with_array, copy, repeats)
    # What a call costs without the array is the row above's matter, on either side.
    nothing, start = _alternating(
        lambda: empty.distributed(),
        lambda: _processes([sys.executable, "-c", "pass"]),
        repeats,
    )
    return _row(
        f"a captured array of {LARGE // 1_000_000} MB",
        ours - nothing,
        "write, read",
        bare - start,
        2,
    )


def _warm(folder: Path, project: str, repeats: int) -> Iterator[Row]:
    """Later calls of one function that uses torch, kept warm, beside the same in a pool whose
    processes have imported it: https://github.com/joblib/loky."""
    if find_spec("torch") is None or find_spec("joblib") is None:
        print("torch or joblib is not installed: no figures of later calls")
        return
    import torch
    from joblib.externals.loky import get_reusable_executor

    def total() -> float:
        return float(torch.ones(1000).sum())

    later = distributed(gpus=RANKS, gpu_type="CPU")(total)
    pool = get_reusable_executor(max_workers=RANKS, timeout=PATIENCE)

    def pooled() -> None:
        for task in [pool.submit(total) for _ in range(RANKS)]:
            task.result()

    settings = folder / "sgpu.yml"
    settings.write_text(project.replace("functions: {", "functions: {keep_warm: 10m, "))
    try:
        # The first round starts the pool, and the import that is kept.
        ours, loky = _alternating(later.distributed, pooled, repeats)
        settings.write_text(project)
        before, _ = _alternating(later.distributed, pooled, 3)
    finally:
        pool.shutdown()
    what = f"a later call that uses torch, {RANKS} ranks"
    yield _row(what, ours, "a warm pool of loky", loky, None)
    yield _row(what, ours, "the same, not kept warm", before, 0.5)


def _alternating(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """The medians of both, after a round that does not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for number in range(repeats + 1):
            for times, step in zip(seconds, (first, second), strict=True):
                began = time.perf_counter()
                step()
                if number:
                    times.append(time.perf_counter() - began)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _processes(argv: list[object]) -> None:
    started = [subprocess.Popen([str(word) for word in argv]) for _ in range(RANKS)]
    for process in started:
        process.wait()


def _row(what: str, ours: float, name: str, bare: float, limit: float | None) -> Row:
    return Row(
        what=what,
        took=f"{ours * 1000:.0f} ms",
        against=f"{name}, {bare * 1000:.0f} ms",
        ratio=ours / bare,
        limit=limit,
    )
