"""A plan and all that its apply needs: what happens between both is no part of it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.content.store.content_store import default_root
from sgpu_decl.model.event import ApplyEvent, Step

RUN = "name: train\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"
TRAIN = "import os\n\n\ndef main():\n    return os.path.exists('later.py')\n"


@pytest.fixture
def written(folder: Path) -> Path:
    (folder / "run.yaml").write_text(RUN)
    (folder / "train.py").write_text(TRAIN)
    return folder


def test_a_second_plan_in_between_changes_nothing(
    written: Path, open_file: Callable[..., Session]
) -> None:
    session = open_file()
    prepared = session.plan()
    (written / "later.py").write_text("")
    assert session.plan().plan.changes != prepared.plan.changes
    assert [file.path for tree in prepared.code_trees for file in tree.entries] == ["train.py"]

    (ref,) = session.apply(prepared).launched

    session.runs.wait([ref], timeout=60)
    assert [result["value"] for result in session.runs.results(ref)] == [False]


def test_what_a_launch_needs_is_kept_before_it_is_launched(
    written: Path, open_file: Callable[..., Session]
) -> None:
    """So that a gc of another project cannot take it, whenever this process dies."""
    session = open_file()
    prepared = session.plan()
    kept: list[list[str]] = []

    def started(event: ApplyEvent) -> None:
        if event.step is Step.STARTED:
            records = (default_root() / "roots").glob("*.json")
            kept.extend(json.loads(record.read_bytes())["digests"] for record in records)

    (ref,) = session.apply(prepared, sink=started).launched
    session.runs.wait([ref], timeout=60)
    assert kept == [[tree.digest for tree in prepared.code_trees]]


def test_every_copy_of_the_code_is_reported_in_bytes(
    written: Path, open_file: Callable[..., Session]
) -> None:
    """The code is stored and then copied for each launch: one long file of it, in parts."""
    weights = 3 * 2**20 + 7
    (written / "weights.bin").write_bytes(os.urandom(weights))
    (written / "run.yaml").write_text(f"{RUN}args: {{n: 1}}\nmatrix: {{n: [1, 2]}}\n")
    (written / "train.py").write_text("def main(n):\n    return n\n")
    session, told = open_file(), _Told()
    prepared = session.plan(progress=told)
    hashing = told.steps["hashing"]
    assert max(map(hashing.count, hashing)) > 3  # while one file is read
    size = sum(entry.size for tree in prepared.code_trees for entry in tree.entries)
    staged, _ = session.stage(prepared, progress=told)
    assert {total for _, total in told.steps["storing"]} == {size}
    refs = session.apply(staged, progress=told).launched
    session.runs.wait(refs, timeout=60)
    copied = [done for done, _ in told.steps["staging"]]
    assert copied == sorted(copied)
    assert told.steps["staging"][-1] == (2 * size, 2 * size)
    assert len(copied) > 6


class _Told:
    """Remembers what a progress is told."""

    def __init__(self) -> None:
        self.steps: dict[str, list[tuple[int, int]]] = {}

    def advance(self, phase: str, done: int, total: int) -> None:
        self.steps.setdefault(phase, []).append((done, total))
