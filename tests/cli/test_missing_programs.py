"""A command whose program ranks on this machine would not find is warned about in the plan."""

from typing import Any

import pytest

from tests.cli.conftest import Shell

RUN = "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"


def warnings(sgpu: Shell, text: str) -> list[dict[str, Any]]:
    sgpu.write("run.yaml", RUN + text)
    return sgpu.checks(severity="warning")


def test_a_program_that_is_not_on_the_path(sgpu: Shell) -> None:
    (warning,) = warnings(sgpu, "command: [slep, '1']\n")
    assert warning["id"] == "program_missing"
    assert warning["summary"] == "there is no program `slep` on the PATH of the ranks"
    assert warning["hint"] == "did you mean `sleep`?"
    assert warning["place"]["line"] == 5
    assert warnings(sgpu, "command: [sleep, '1']\n") == []


def test_a_sweep_over_many_programs_is_not_compared_with_all_there_are(sgpu: Shell) -> None:
    """To plan a thousand cells that name each another program took seven seconds for the hints."""
    cells = [f"slee{number}" for number in range(12)]
    found = warnings(sgpu, f"command: ['${{matrix.n}}']\nmatrix: {{n: {cells}}}\n")
    assert len(found) == 12
    hints = [item["hint"] for item in found]
    assert hints.count("did you mean `sleep`?") == 10
    assert hints.count("correct the name, or install it") == 2


def test_the_path_is_that_of_the_ranks(sgpu: Shell) -> None:
    sgpu.write("bin/mine", "#!/bin/sh\n")
    (sgpu.folder / "bin/mine").chmod(0o755)
    own = f"env: {{variables: {{PATH: '{sgpu.folder}/bin'}}}}\n"
    assert warnings(sgpu, f"command: [mine]\n{own}") == []
    assert [item["id"] for item in warnings(sgpu, f"command: [sleep]\n{own}")] == [
        "program_missing"
    ]


@pytest.mark.parametrize(
    ("mode", "words"), [(0o644, "is not executable"), (None, "does not exist"), (0o755, None)]
)
def test_a_program_in_the_code(sgpu: Shell, mode: int | None, words: str | None) -> None:
    if mode is not None:
        sgpu.write("src/train.sh", "#!/bin/sh\n")
        (sgpu.folder / "src/train.sh").chmod(mode)
    sgpu.write("src/other.py", "")
    found = warnings(sgpu, "command: [./train.sh]\ncode: {root: src}\n")
    summaries = [item["summary"] for item in found]
    assert summaries == ([f"the program `./train.sh` {words}"] if words else [])


def test_run_warns_before_it_launches(sgpu: Shell) -> None:
    done = sgpu.exits(
        5, "run", "-y", "--type", "CPU", "--set", "mlflow.enabled=false", "nosuchprog"
    )
    assert "warning[program_missing]: run.nosuchprog: there is no program `nosuchprog`" in done.out
