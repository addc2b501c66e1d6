"""Code of many small files: the first apply of a run with it, its next attempt, and the copy that
each attempt gets, beside `cp -a` of the folder."""

import time
from collections.abc import Iterator
from pathlib import Path

from measuring import Measurement, Row, measure

from sgpu_decl.code.code_store import CodeStore

__all__ = ["code_copies"]

FILES = 10_000
FOLDERS = 100
ROUNDS = 3
BODY = "def function(x):\n    return x\n" * 100  # 3 kB
RUN = "name: one\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"


def code_copies(scratch: Path, sgpu: str) -> Iterator[Row]:
    """Each round has stores and caches of its own, and a folder that was not copied before. What an
    apply takes with code of one file is no part of the figures."""
    copies, firsts, nexts, staged = [], [], [], []
    for number in range(ROUNDS):
        home, folder, bare, warm = (
            scratch / f"code-{name}{number}" for name in ("home", "many", "bare", "warm")
        )
        _write_code(folder, number)
        for other in (bare, warm):
            other.mkdir()
            (other / "run.yaml").write_text(RUN)
        copies.append(measure(("cp", "-a", str(folder), f"{folder}-copy"), scratch).seconds)
        apply = ("env", f"XDG_DATA_HOME={home}/data", f"XDG_CACHE_HOME={home}/cache", sgpu, "apply",
                 "-y", "run.yaml")  # fmt: skip
        measure(apply, warm)
        again = (*apply, "--rerun", "run.one")
        firsts.append(_beyond(measure(apply, folder), measure(apply, bare).seconds))
        nexts.append(_beyond(measure(again, folder), measure(again, bare).seconds))
        staged.append(_staged(home / "data" / "sgpu" / "store", folder))
    peer, copying = sorted(copies)[ROUNDS // 2], sorted(staged)[ROUNDS // 2]
    yield Row(
        what=f"an attempt's copy of {FILES:,} files, each compared with its digest",
        took=f"{copying:.2f} s",
        against=f"cp -a, {peer:.2f} s, n={ROUNDS}",
        ratio=copying / peer,
        limit=1.3,
    )
    for what, rounds, limit in (("first apply", firsts, 5), ("next attempt", nexts, 3)):
        mine = Measurement.median(rounds)
        yield Row(
            what=f"{what} with code of {FILES:,} files, beyond one file",
            took=str(mine),
            against=f"cp -a, {peer:.2f} s, n={ROUNDS}",
            ratio=mine.seconds / peer,
            limit=limit,
        )


def _staged(store: Path, folder: Path) -> float:
    """The seconds that a copy of the largest snapshot in a store takes."""
    largest = max((store / "manifests").iterdir(), key=lambda file: file.stat().st_size)
    began = time.perf_counter()
    CodeStore(store).materialize(f"sha256:{largest.stem}", folder.with_name(f"{folder.name}-run"))
    return time.perf_counter() - began


def _write_code(folder: Path, number: int) -> None:
    for inner in range(FOLDERS):
        package = folder / f"package{inner}"
        package.mkdir(parents=True)
        for module in range(FILES // FOLDERS):
            text = f"# {number} {inner} {module}\n{BODY}"
            (package / f"module{module}.py").write_text(text)
    (folder / "run.yaml").write_text(RUN)


def _beyond(whole: Measurement, least: float) -> Measurement:
    return Measurement(seconds=whole.seconds - least, memory=whole.memory)
