"""The plan says what a launch with `resume` finds."""

from dataclasses import replace

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.planning.resume_checks import resume_checks


def desired(key: str = "", found: int | None = None, *, resumes: bool = True) -> DesiredRun:
    address = Address.run("train", key)
    return DesiredRun(
        address=address,
        backend="local",
        owner="run.yaml",
        spec="{}",
        until="success",
        on_active="error",
        resumes=resumes,
        resumes_from=AttemptRef(address, found) if found is not None else None,
    )


def said(*runs: DesiredRun) -> list[str]:
    return [check.summary for check in resume_checks(runs)]


def test_one_run_names_the_attempt() -> None:
    assert said(desired(found=7)) == [
        "it finds the output of `train#7` in SGPU_PREVIOUS_OUTPUT_DIR"
    ]
    assert said(desired()) == ["no earlier attempt left output: it starts from the beginning"]
    assert said(desired(found=7, resumes=False)) == []


def test_the_cells_of_a_matrix_are_told_together() -> None:
    runs = [desired("n=1", 2), desired("n=2"), desired("n=3", 1)]
    assert said(*runs) == [
        "2 of 3 runs of `train` find the output of their last attempt in SGPU_PREVIOUS_OUTPUT_DIR"
    ]
    assert said(*(replace(run, resumes_from=None) for run in runs)) == [
        "no earlier attempt of `train` left output: all start from the beginning"
    ]
    assert [str(check.address) for check in resume_checks(runs[:1])] == ['run.train["n=1"]']
