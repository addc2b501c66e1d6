"""A project of many files beside the same runs in one file."""

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, alternating, measure
from workloads import blocks, fragments, remember_apart

__all__ = ["included_files"]

RUNS, FILES = 2_000, 200
# A runner that is new knows nothing of the code: each round has a cache of its own.
FRESH = 'XDG_CACHE_HOME=$(mktemp -d "$PWD/../cache-XXXXXX") exec "$0" "$@"'


def included_files(scratch: Path, sgpu: str, repeats: int) -> Iterator[Row]:
    one, many = scratch / "one-file", scratch / "many-files"
    files = (blocks(one, RUNS), fragments(many, RUNS, FILES))
    fresh = ("sh", "-c", FRESH, sgpu)
    exact = (sgpu, "plan", "--detailed-exitcode")  # a no-op that is none would end with 2
    for what, command, most in (
        ("validate", (*fresh, "validate"), 1),
        ("plan, first", (*fresh, "plan"), 2),
        ("plan, no-op", exact, 2),
    ):
        if command is exact:
            for file in files:
                remember_apart(file)
                measure(exact, file.parent)  # its code is known afterwards
        (joined, divided), _ = alternating(
            [(command, one), (command, many)], min(repeats, 5), warm=command is exact
        )
        title = f"{what} of {RUNS:,} runs in {FILES} files"
        yield Row(
            what=title,
            took=str(divided),
            against=f"the same in one file, {joined}",
            ratio=divided.seconds / joined.seconds,
            limit=1.15,
        )
        yield Row(
            what=title,
            took=str(divided),
            against=f"{most} s, on an idle machine of 2 cores",
            ratio=divided.seconds / most,
            limit=1,
        )
