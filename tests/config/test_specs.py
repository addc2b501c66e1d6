"""Specs and fingerprints of 200 files. States of users hold them: if the bytes of one change, a run
that succeeded is launched again. So lines are only added: each has the text of a file, its name,
its target, and what each run of it became. (A new default of a launch field leaves the specs out
that write it: such a line gets another value, and no fingerprint changes.)"""

import json
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.planner.fingerprint import fingerprint
from tests.reading import read

LINES = (Path(__file__).parent / "golden/specs.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def specs_of(text: str, file: str, target: str | None) -> list[dict[str, str]]:
    loaded, found = read(
        text, file, target=target, variables=(), sets=(), environ={"USER": "ada"}, git=dict
    )
    errors = [one.summary for one in found if one.severity is Severity.ERROR]
    assert errors == []
    assert loaded is not None
    return [
        {
            "address": str(run.address),
            "spec": run.spec.text,
            "fingerprint": fingerprint(run.spec, "sha256:c", "sha256:e"),
        }
        for run in loaded.runs
    ]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_file_gives_the_specs_that_it_always_gave(case: dict[str, Any]) -> None:
    assert specs_of(case["text"], case["file"], case["target"]) == case["runs"]


def test_there_are_enough() -> None:
    assert len({run["spec"] for case in CASES for run in case["runs"]}) >= 200
