"""An environment looked at and taken into the store: first, unchanged, and with one package
upgraded, beside what has to read and write it all.

Nothing that was written is deleted between the rounds: file systems are slow for minutes to make
files anew where many were just deleted.
"""

import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from measuring import Row, Taken, take

__all__ = ["captures"]

ROUNDS = 3
MEMORY = 200_000_000  # bytes
UNCHANGED = 0.6  # seconds
TAKES = """
import sys
from pathlib import Path
from sgpu_decl.environments.progress import Quiet
from sgpu_decl.environments.stored.store import EnvironmentStore
store = EnvironmentStore(Path(sys.argv[2]))
captured, _ = store.capture(sys.argv[1], Quiet(), cache=Path(sys.argv[3]))
assert captured is not None and not store.missing(captured.manifest)
"""
LOOKS = """
import sys
from pathlib import Path
from sgpu_decl.environments.captured.capturing import capture
from sgpu_decl.environments.progress import Quiet
assert capture(sys.argv[1], progress=Quiet(), cache=Path(sys.argv[2]))[0] is not None
"""


def captures(
    scratch: Path, interpreter: Path, package: str, installing: Taken | None
) -> Iterator[Row]:
    """Of a virtual environment, and of one of its packages."""
    environment = interpreter.parents[1]
    python = sys.executable
    first: list[Taken] = []
    peers: dict[str, list[Taken]] = {"cp -a": [], "cp -al": []}
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
        for name, taken in peers.items():
            taken.append(take(copying[name], scratch))
        first.append(take((python, "-c", TAKES, str(interpreter), str(store), str(cache)), scratch))
    mine = _median(first)
    medians = {name: _median(taken) for name, taken in peers.items()}
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
    unchanged = _median([take(look, scratch) for _ in range(2 * ROUNDS + 1)])
    yield Row(
        what="capture of an unchanged environment, process and all",
        took=f"{unchanged.seconds:.2f} s",
        against=f"{UNCHANGED} s",
        ratio=unchanged.seconds / UNCHANGED,
        limit=1,
    )
    yield upgraded(scratch, interpreter, package)


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
        mine = take((*take_in, str(where / "cache")), scratch)
        copy = where / f"package{number}"
        hashing = "find . -type f -print0 | xargs -0 sha256sum"
        peer = take(("sh", "-c", f"cp -a {folder} {copy} && cd {copy} && {hashing}"), scratch)
        more.append((mine.seconds - peer.seconds, mine, peer))
    seconds, mine, peer = sorted(more, key=lambda it: it[0])[ROUNDS // 2]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Row(
        what=f"capture after an upgrade of one package of {size / 1e6:.0f} MB",
        took=f"{mine.seconds:.2f} s",
        against=f"1 s more than cp -a and sha256sum of it, {peer.seconds:.2f} s",
        ratio=seconds / 1.0,
        limit=1,
    )


def _median(taken: Sequence[Taken]) -> Taken:
    return Taken(
        seconds=statistics.median(it.seconds for it in taken),
        memory=max(it.memory for it in taken),
    )
