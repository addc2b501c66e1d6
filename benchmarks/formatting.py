"""What `sgpu fmt` takes for a file of 1 MiB in which each run changes."""

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, alternating
from workloads import blocks

__all__ = ["formatting"]

_SIZE = 1 << 20


def formatting(scratch: Path, sgpu: str, repeats: int) -> Iterator[Row]:
    folder = scratch / "format"
    file = blocks(folder, 10_000)
    text = file.read_text().replace("    ", "      ").replace(": ", ":  ")
    file.write_text(text[: text.rindex("\n", 0, _SIZE) + 1])
    command = ("sh", "-c", '"$0" fmt - < "$1" > formatted', sgpu, file.name)
    (measurement,), _ = alternating([(command, folder)], min(repeats, 5), warm=True)
    yield Row(
        what="sgpu fmt, a file of 1 MiB",
        took=str(measurement),
        against="a second",
        ratio=measurement.seconds,
        limit=1,
    )
