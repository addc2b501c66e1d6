"""Plans of runs as people write them, beside those of bare ones of the same number."""

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, alternating, measure
from workloads import blocks, matrix, real_blocks, real_matrix, remember_apart

__all__ = ["real_runs"]

# A first plan knows nothing of the file: each round has a cache of its own.
FIRST = 'XDG_CACHE_HOME=$(mktemp -d "$PWD/../cache-XXXXXX") exec "$0" plan "$1"'
ROUNDS = 3
# A bare no-op matrix takes little more than the start of a command.
LIMITS = {
    ("blocks", "first"): 1.6,
    ("blocks", "no-op"): 1.6,
    ("matrix", "first"): 2.2,
    ("matrix", "no-op"): 3,
}


def real_runs(scratch: Path, sgpu: str, count: int) -> Iterator[Row]:
    for shape, bare, real in (("blocks", blocks, real_blocks), ("matrix", matrix, real_matrix)):
        files = [
            write(scratch / f"{name}-{shape}", count)
            for name, write in (("bare", bare), ("real", real))
        ]
        for kind in ("first", "no-op"):
            command: tuple[str, ...] = ("sh", "-c", FIRST, sgpu, files[0].name)
            if kind == "no-op":
                command = (sgpu, "plan", "--detailed-exitcode", files[0].name)
                for file in files:
                    remember_apart(file)
                    for _ in range(2):  # what the file says is remembered from the second time on
                        measure((sgpu, "plan", file.name), file.parent)
            (plain, measurement), rounds = alternating(
                [(command, file.parent) for file in files], ROUNDS
            )
            yield Row(
                what=f"plan of {count:,} real runs, {shape}, {kind}",
                took=str(measurement),
                against=f"bare ones, {plain}, n={rounds}",
                ratio=measurement.seconds / plain.seconds,
                limit=LIMITS[shape, kind],
            )
