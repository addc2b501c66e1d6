"""An environment looked at and taken into the store: first, unchanged, and with one package
upgraded, beside what has to read and write it all.

Nothing that was written is deleted between the rounds: file systems are slow for minutes to make
files anew where many were just deleted.
"""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from measuring import Measurement, Row, measure

__all__ = ["captures"]

ROUNDS = 3
MEMORY = 200_000_000  # bytes
UNCHANGED = 0.6  # seconds
TAKES = """
import sys
from pathlib import Path
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.environments.environment_store import EnvironmentStore
store = EnvironmentStore(Path(sys.argv[2]))
captured, _ = store.capture(sys.argv[1], Quiet(), cache=Path(sys.argv[3]))
assert captured is not None and not store.missing(captured.manifest)
"""
FLOOR = """
import os, sys, time
started = time.perf_counter()
waiting = [sys.argv[1]]
while waiting:
    with os.scandir(waiting.pop()) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                entry.stat(follow_symlinks=False)
print(time.perf_counter() - started)
"""
RUN = "name: one\ngpus: 2\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
SGPU = str(Path(sys.executable).with_name("sgpu"))
LOOKS = """
import sys
from pathlib import Path
from sgpu_decl.environments.captured.capture import capture
from sgpu_decl.model.step_progress import Quiet
assert capture(sys.argv[1], progress=Quiet(), cache=Path(sys.argv[2]))[0] is not None
"""


def captures(
    scratch: Path, interpreter: Path, package: str, installing: Measurement | None
) -> Iterator[Row]:
    """Of a virtual environment, and of one of its packages."""
    environment = interpreter.parents[1]
    python = sys.executable
    first: list[Measurement] = []
    peers: dict[str, list[Measurement]] = {"cp -a": [], "cp -al": []}
    if shutil.which("zstd"):
        peers["tar and zstd -3"] = []
    else:
        print("zstd is not on the PATH: no figures beside it")
    for number in range(ROUNDS):
        where = scratch / f"capture{number}"
        where.mkdir()
        store, cache, copy = where / "store", where / "cache", where / "copy"
        copying: dict[str, Sequence[str]] = {
            "cp -a": ("cp", "-a", str(environment), str(copy)),
            "cp -al": ("cp", "-al", str(environment), f"{copy}-l"),
            "tar and zstd -3": (
                "sh",
                "-c",
                f"tar -C {environment} -cf - . | zstd -q -3 -T0 > {copy}.tar.zst",
            ),
        }
        for name, rounds in peers.items():
            rounds.append(measure(copying[name], scratch))
        first.append(
            measure((python, "-c", TAKES, str(interpreter), str(store), str(cache)), scratch)
        )
    mine = Measurement.median(first)
    medians = {name: Measurement.median(rounds) for name, rounds in peers.items()}
    if installing is not None:
        medians["uv pip install, warm cache, no bytecode"] = installing
    for name, peer in medians.items():
        yield Row(
            what="first capture into the store",
            took=f"{mine.seconds:.2f} s, {mine.memory / 1e6:.0f} MB",
            against=f"{name}, {peer.seconds:.2f} s, n={ROUNDS}",
            ratio=mine.seconds / peer.seconds,
            limit=1.3 if name == "cp -a" else None,
        )
    yield Row(
        what="first capture: memory",
        took=f"{mine.memory / 1e6:.0f} MB",
        against=f"{MEMORY / 1e6:.0f} MB",
        ratio=mine.memory / MEMORY,
        limit=1,
    )
    look = (python, "-c", LOOKS, str(interpreter), str(scratch / "capture0/cache"))
    unchanged = Measurement.median([measure(look, scratch) for _ in range(2 * ROUNDS + 1)])
    yield Row(
        what="capture of an unchanged environment, process and all",
        took=f"{unchanged.seconds:.2f} s",
        against=f"{UNCHANGED} s",
        ratio=unchanged.seconds / UNCHANGED,
        limit=1,
    )
    yield from applied(scratch, interpreter)
    yield upgraded(scratch, interpreter, package)


def applied(scratch: Path, interpreter: Path) -> Iterator[Row]:
    """Of runs in a captured environment: the first apply of one beside a copy of the environment,
    and a plan in which nothing changed beside a look at all files. In turns, since both depend on
    what else the machine does."""
    environment = interpreter.parents[1]
    folder, copies, applies = scratch / "runs", [], []
    for number in range(ROUNDS):
        copy, home = scratch / f"applied-copy{number}", scratch / f"home{number}"
        folder = scratch / f"runs{number}"
        folder.mkdir()
        (folder / "bare.yaml").write_text(RUN)
        (folder / "run.yaml").write_text(f"{RUN}env: {{snapshot: true, python: {interpreter}}}\n")
        homes = ("env", f"XDG_DATA_HOME={home}/data", f"XDG_CACHE_HOME={home}/cache")
        copies.append(measure(("cp", "-a", str(environment), str(copy)), scratch))
        applies.append(measure((*homes, SGPU, "apply", "-y", "run.yaml"), folder))
    mine, peer = Measurement.median(applies), Measurement.median(copies)
    yield Row(
        what="first apply in a captured environment, ranks and all",
        took=f"{mine.seconds:.2f} s, {mine.memory / 1e6:.0f} MB",
        against=f"cp -a, {peer.seconds:.2f} s, n={ROUNDS}",
        ratio=mine.seconds / peer.seconds,
        limit=1.4,
    )
    more, floors = [], []
    for number in range(2 * ROUNDS + 2):
        seconds = [
            measure((*homes, SGPU, "plan", name), folder).seconds
            for name in ("run.yaml", "bare.yaml")
        ]
        floor = subprocess.check_output([sys.executable, "-c", FLOOR, os.fspath(environment)])
        if number:  # the first fills the caches
            more.append(seconds[0] - seconds[1])
            floors.append(float(floor))
    yield Row(
        what="plan with an unchanged captured environment, beyond one without",
        took=f"{statistics.median(more):.2f} s",
        against=f"os.scandir and stat, {statistics.median(floors):.2f} s, n={len(more)}",
        ratio=statistics.median(more) / statistics.median(floors),
        limit=2.5,
    )


def upgraded(scratch: Path, interpreter: Path, package: str) -> Row:
    """Every file of a package written anew, and nothing else."""
    (folder,) = interpreter.parents[1].glob(f"lib/python*/site-packages/{package}")
    where = scratch / "capture0"
    take_in = (sys.executable, "-c", TAKES, str(interpreter), str(where / "store"))
    more = []
    for number in range(ROUNDS):
        for path in folder.rglob("*"):
            if path.is_file():
                with open(path, "ab") as file:
                    file.write(b"\n# %d" % number)
        mine = measure((*take_in, str(where / "cache")), scratch)
        copy = where / f"package{number}"
        hashing = "find . -type f -print0 | xargs -0 sha256sum"
        peer = measure(("sh", "-c", f"cp -a {folder} {copy} && cd {copy} && {hashing}"), scratch)
        more.append((mine.seconds - peer.seconds, mine, peer))
    seconds, mine, peer = sorted(more, key=lambda item: item[0])[ROUNDS // 2]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Row(
        what=f"capture after an upgrade of one package of {size / 1e6:.0f} MB",
        took=f"{mine.seconds:.2f} s",
        against=f"1 s more than cp -a and sha256sum of it, {peer.seconds:.2f} s",
        ratio=seconds / 1.0,
        limit=1,
    )
