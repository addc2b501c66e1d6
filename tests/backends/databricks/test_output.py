"""What ranks leave in SGPU_OUTPUT_DIR, brought here from the nodes."""

import hashlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.node_report import REPORT, read_report, seal
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.rank_output import Output
from tests.backends.databricks.bench import DatabricksBench, Launched

CODE = """\
import os, pathlib
def main(n):
    rank, folder = os.environ["RANK"], pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    (folder / "shards").mkdir()
    (folder / "shards" / f"{rank}.bin").write_bytes(b"x" * 100_000)
    (folder / "log.txt").write_text(rank)
    if rank == "1":
        (folder / "shards" / "large.bin").write_bytes(bytes(range(250)) * 70_000)
"""
LARGE = bytes(range(250)) * 70_000  # three parts


class Told:
    def __init__(self) -> None:
        self.steps: list[tuple[str, int, int]] = []

    def advance(self, phase: str, done: int, total: int) -> None:
        self.steps.append((phase, done, total))


@pytest.fixture
def run(bench: DatabricksBench) -> Launched:
    """One that has ended, with files of both nodes."""
    bench.code(CODE)
    run = bench.launch()
    with pytest.raises(BackendError) as early:
        run.session.runs.output(run.ref)
    assert early.value.code == "nothing_yet"
    return run.ended()


def ran(bench: DatabricksBench, code: str) -> Launched:
    bench.code(code)
    run = bench.run()
    assert run.status.state is AttemptState.SUCCEEDED
    return run


def output(run: Launched, *told: Told) -> Output:
    return run.session.runs.output(run.ref, *told)


def names(kept: Output) -> set[str]:
    """The files that were brought here."""
    files = (path for path in kept.folder.rglob("*") if path.is_file())
    return {path.relative_to(kept.folder).as_posix() for path in files}


def exports(bench: DatabricksBench) -> list[str]:
    """The paths of files that were read."""
    return [one.query["path"] for one in bench.requests("/workspace/export")]


def parts(bench: DatabricksBench) -> list[str]:
    """Parts that were read."""
    return sorted(path.rpartition("/parts/")[2] for path in exports(bench) if "/parts/" in path)


def test_files_of_all_nodes_come_into_one_folder_once(
    run: Launched, bench: DatabricksBench
) -> None:
    told = Told()

    kept = output(run, told)

    shards = {f"shards/{name}.bin" for name in ("0", "1", "large")}
    assert names(kept) == {*shards, "log.txt", "node_1/log.txt"}
    texts = [(kept.folder / item).read_text() for item in ("log.txt", "node_1/log.txt")]
    assert texts == ["0", "1"]
    assert (kept.folder / "shards/1.bin").read_bytes() == b"x" * 100_000
    assert (kept.folder / "shards/large.bin").read_bytes() == LARGE
    assert (kept.files, kept.bytes, kept.lacking) == (5, 17_700_002, ())
    done = [step for _, step, _ in told.steps]
    assert done == sorted(done)
    assert 0 < done[len(done) // 2] < 17_700_002
    assert told.steps[-1] == ("fetching", 17_700_002, 17_700_002)
    assert kept.folder.parent == output(run).folder.parent
    read = [path for path in exports(bench) if path.partition("/back/")[2]]
    assert len(read) == len(set(read)), "each file and each part once"
    assert not list((kept.folder.parent / ".fetching").iterdir())


def test_of_a_launch_folder_that_was_deleted_what_is_here_is_shown_or_the_rest_reported_gone(
    run: Launched, bench: DatabricksBench
) -> None:
    kept = output(run)
    for launch in bench.staging.glob("runs/*/hello/*"):
        shutil.rmtree(launch)

    assert output(run) == kept

    next(path for path in kept.folder.rglob("*") if path.is_file()).unlink()
    with pytest.raises(NotFound) as gone:
        output(run)

    assert gone.value.code == "attempt_freed"
    assert f"Files that were fetched before are in `{kept.folder}`." in (gone.value.hint or "")


def test_a_fetch_that_broke_off_goes_on_with_the_part_that_is_missing(
    run: Launched, bench: DatabricksBench
) -> None:
    part = "GET */workspace/export?*parts%2F0%2F1*"
    bench.refuse(part, 403, "PERMISSION_DENIED", "not now")

    first = output(run)
    read = parts(bench)
    bench.forget_requests()
    second, told = output(run, (watching := Told())), watching.steps

    assert (first.files, first.lacking) == (4, ("shards/large.bin",))
    assert "not now" in first.why
    assert read == ["0/0", "0/1", "0/2"]
    assert parts(bench) == ["0/1"]
    assert (second.folder / "shards/large.bin").read_bytes() == LARGE
    assert (second.files, second.lacking) == (5, ())
    assert told[0][1] > 9_000_000, "what was fetched before counts"
    assert told[-1][1:] == (17_700_002, 17_700_002)


@pytest.mark.expensive
def test_a_part_that_somebody_changed_is_told(run: Launched, tenant: Path) -> None:
    (part,) = tenant.glob("**/parts/0/2")
    part.write_bytes(bytes(part.stat().st_size))

    kept = output(run)

    assert kept.lacking == ("shards/large.bin",)
    assert "not what the node wrote" in kept.why


@pytest.mark.expensive
def test_a_file_that_is_there_whole_and_too_large_is_told(
    run: Launched, project: Path, tenant: Path
) -> None:
    """As a mount that takes larger files than it gives would have it."""
    (folder,) = tenant.glob("**/back/0/node_0/output")
    (folder / "whole.bin").write_bytes(bytes(11_000_000))
    report: dict[str, Any] = read_report(str(folder.parent)) or {}
    file = {"bytes": 11_000_000, "sha256": hashlib.sha256(bytes(11_000_000)).hexdigest()}
    report["files"]["output/whole.bin"] = file
    (folder.parent / REPORT).write_bytes(seal(**report))
    for kept_here in project.glob(f".sgpu/**/{REPORT}"):
        kept_here.unlink()

    kept = output(run)

    assert kept.lacking == ("whole.bin",)
    assert "10 MiB" in kept.why
    assert "backend.staging" in kept.why


@pytest.mark.expensive
def test_a_large_value_comes_back_in_parts(bench: DatabricksBench) -> None:
    run = ran(bench, "def main(n):\n    return 'x' * 11_000_000\n")
    again = Launched(bench.open(), run.ref)

    for _ in ("fetched", "from here"):
        assert [str(one["value"]) == "x" * 11_000_000 for one in again.results] == [True, True]
    assert parts(bench) == ["0/0", "0/0", "0/1", "0/1"], "of two nodes"


@pytest.mark.expensive
def test_a_checkpoint_of_200_mb_is_fetched(bench: DatabricksBench) -> None:
    run = ran(
        bench,
        "import os, pathlib, random\n"
        "def main(n):\n"
        "    if os.environ['RANK'] == '0':\n"
        "        folder = pathlib.Path(os.environ['SGPU_OUTPUT_DIR'])\n"
        "        (folder / 'model.pt').write_bytes(random.Random(0).randbytes(200_000_000))\n",
    )

    kept = output(Launched(bench.open(), run.ref))

    assert (kept.folder / "model.pt").read_bytes() == random.Random(0).randbytes(200_000_000)
    assert (kept.files, kept.bytes, kept.lacking) == (1, 200_000_000, ())


CLASHING = """\
import os, pathlib
def main(n):
    folder = pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    if os.environ["RANK"] == "0":
        (folder / "best").write_text("a file")
        (folder / ("x" * 250)).write_text("a long name")
    else:
        (folder / "best").mkdir()
        (folder / "best" / "model").write_text("in a folder")
"""


@pytest.mark.expensive
def test_names_that_clash_or_are_long_are_all_brought(bench: DatabricksBench) -> None:
    run = ran(bench, CLASHING)

    kept = output(run)

    assert names(kept) == {"best", "x" * 250, "node_1/best/model"}
    assert (kept.folder / "best").read_text() == "a file"
    assert (kept.files, kept.lacking) == (3, ())
    assert output(run) == kept
