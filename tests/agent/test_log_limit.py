"""A log that outgrows its bound loses its oldest part, whoever writes it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.rendering.spec import Entry

LIMIT = 256 << 10
PYTHON = """
import os, time
for number in range(20_000):
    print("line %05d" % number, "x" * 40)
while not os.path.exists(os.environ["SGPU_OUTPUT_DIR"] + "/go"): time.sleep(0.01)
print("after the cut")
"""
SHELL = """
for n in $(seq 20000); do printf 'line %05d xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n' $n; done
while [ ! -e $SGPU_OUTPUT_DIR/go ]; do sleep 0.01; done
echo after the cut
"""


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.exists() else 0


@pytest.mark.parametrize(
    "fields",
    [{}, {"entry": Entry(kind="shell", shell=SHELL)}],
    ids=["python", "command"],
)
def test_the_newest_part_is_kept(make_attempt: Callable[..., Any], fields: dict[str, Any]) -> None:
    attempt = make_attempt(PYTHON, world_size=1, log_limit=LIMIT, **fields).launch()
    log = attempt.folder / "ranks/0/0/stdout.log"
    attempt.until(lambda: log.exists() and log.stat().st_size > 1_000_000)
    attempt.until(lambda: on_disk(log) <= LIMIT)
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    with log.open("rb") as file:
        start = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        file.seek(start)
        kept = file.read().split(b"\n")
    assert 0 < start < log.stat().st_size
    assert len(b"\n".join(kept)) >= LIMIT // 2
    numbers = [int(line.split()[1]) for line in kept[1:-2]]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert kept[-2:] == [b"after the cut", b""]
