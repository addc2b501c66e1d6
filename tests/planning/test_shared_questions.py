"""What runs have in common is asked once, whatever number of runs there is."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from sgpu_decl.api import Location, Session

SOURCE = ("sources", "bindings", "opened_files", "selection")
STARTS = (
    "entrypoint: train.py:main, args: {{lr: 0.1, seed: {seed}}}",
    'entrypoint: train.py, args: ["--seed", "{seed}"]',
    'command: [python, train.py, "--seed", "{seed}"]',
    'command: "bash prepare.sh && python train.py --seed {seed} --lr $LR"',
)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(
        "import net\n\n\ndef main(lr, seed):\n    open('config.yaml')\n    open('out/log', 'w')\n"
    )
    (tmp_path / "net.py").write_text("import json\n")
    (tmp_path / "config.yaml").write_text("layers: 2\n")
    (tmp_path / "prepare.sh").write_text("mkdir -p out\n")
    (tmp_path / "README.md").write_text("A sweep.\n")
    return tmp_path


def _calls(file: Path) -> Counter[str]:
    """How often a plan of a file calls functions of the modules that read code."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            if module.startswith("sgpu_decl.code."):
                calls[module.rpartition(".")[2]] += 1

    with Session.open(Location(file=file, project=file.parent)) as session:
        sys.setprofile(note)
        try:
            session.plan()
        finally:
            sys.setprofile(None)
    return calls


def _growth(few: Path, many: Path) -> dict[str, int]:
    """By how many calls a second plan of the larger file surpasses one of the smaller file."""
    for file in (few, many):
        _calls(file)  # what is imported and compiled, once
    less, more = _calls(few), _calls(many)
    return {name: more[name] - less[name] for name in SOURCE if more[name] > less[name]}


def test_runs_that_share_their_code_are_one_question_to_it(code: Path) -> None:
    files = []
    for count in (8, 24):
        lines = ["project: {name: many}", "runs:"]
        for seed in range(count):
            start = STARTS[seed % len(STARTS)].format(seed=seed)
            lines.append(
                f"  r{seed}: {{gpus: 1, type: CPU, {start}, mlflow: {{experiment: e}}, "
                f'env: {{variables: {{LR: "0.1", SEED: "{seed}"}}}}, tags: {{n: "{seed}"}}}}'
            )
        file = code / f"many{count}.yml"
        file.write_text("\n".join(lines) + "\n")
        files.append(file)
    assert _growth(*files) == {}


def test_cells_whose_commands_differ_in_numbers_are_one_question(code: Path) -> None:
    files = []
    for count in (5, 15):
        file = code / f"cells{count}.yaml"
        file.write_text(
            "name: cells\ngpus: 1\ntype: CPU\n"
            "command: bash prepare.sh && python train.py --seed ${matrix.seed} lr=${matrix.lr}\n"
            f"matrix: {{seed: {list(range(count))}, lr: [0.001, 1.0e-4]}}\n"
        )
        files.append(file)
    assert _growth(*files) == {}
