"""A state in PostgreSQL beside one of this machine: plans, applies, and the first copy that a new
runner makes. Needs PostgreSQL, as the tests find it."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import Measurement, Row, alternating, measure
from workloads import blocks, remember_apart

__all__ = ["shared_states"]

RUNS = 250
ROUNDS = 2  # of applies
ENTRIES = 10_000
ROOT = Path(__file__).resolve().parents[1]


def shared_states(scratch: Path, sgpu: str, repeats: int) -> Iterator[Row]:
    sys.path.insert(0, str(ROOT))
    from tests.postgres_server import binaries, running_server

    programs = binaries()
    if programs is None:
        print("there is no PostgreSQL: no figures of a shared state")
        return
    with running_server(programs) as url:
        yield _unchanged(scratch, sgpu, url, repeats)
        yield _applies(scratch, sgpu, url)
        yield _first_copy(scratch, sgpu, url)


def _unchanged(scratch: Path, sgpu: str, url: str, repeats: int) -> Row:
    local, shared = scratch / "plan-local", _sharing(scratch / "plan-shared", RUNS, url)
    blocks(local, RUNS)
    for folder in (local, shared):
        remember_apart(folder / "sgpu.yml")
    plan = (sgpu, "plan", "--detailed-exitcode")
    python = sys.executable
    (own, other, empty, importing), _ = alternating(
        [(plan, local), (plan, shared)]
        + [((python, "-c", line), scratch) for line in ("pass", "import psycopg")],
        repeats,
        warm=True,
    )
    seconds = other.seconds - (importing.seconds - empty.seconds)
    return Row(
        what=f"plan of {RUNS} unchanged runs, state in PostgreSQL",
        took=f"{seconds * 1000:.0f} ms",
        against=f"in SQLite, {own.seconds * 1000:.0f} ms, both without the import of psycopg",
        ratio=seconds / own.seconds,
        limit=1.3,
    )


def _applies(scratch: Path, sgpu: str, url: str) -> Row:
    times: dict[str, list[Measurement]] = {"local": [], "shared": []}
    for number in range(ROUNDS):
        for kind, taken in times.items():
            folder = scratch / f"apply-{kind}-{number}"
            if kind == "shared":
                _sharing(folder, RUNS, url)
            else:
                blocks(folder, RUNS)
            taken.append(measure((sgpu, "apply", "-y", "--detach"), folder))
            measure((sgpu, "wait", "run.*"), folder)
    own, other = (sum(one.seconds for one in taken) / ROUNDS for taken in times.values())
    return Row(
        what=f"apply of {RUNS} runs, state in PostgreSQL",
        took=f"{other:.2f} s",
        against=f"in SQLite, {own:.2f} s, means of {ROUNDS}",
        ratio=other / own,
        limit=1.25,
    )


def _first_copy(scratch: Path, sgpu: str, url: str) -> Row:
    """Two entries for each run: it was begun, and launched."""
    folder = _sharing(scratch / "copied", ENTRIES // 2, url)
    remember_apart(folder / "sgpu.yml")
    shutil.rmtree(folder / ".sgpu")
    command = ("sh", "-c", 'rm -rf .sgpu; exec "$0" state list', sgpu)
    (measurement,), _ = alternating([(command, folder)], 3)
    return Row(
        what=f"first copy of a state of {ENTRIES:,} entries",
        took=str(measurement),
        against="3 s",
        ratio=measurement.seconds / 3,
        limit=1,
    )


def _sharing(folder: Path, count: int, url: str) -> Path:
    """A project of that many runs whose state is in PostgreSQL, under a name of its own."""
    file = blocks(folder, count)
    state = f'project: {{name: {folder.name}}}\nstate: {{kind: postgres, url: "{url}"}}\n'
    file.write_text(state + file.read_text().partition("\n")[2])
    return folder
