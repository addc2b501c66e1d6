"""The plan says what a launch with `resume` finds."""

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.planner.launch_checks import resume_checks


def desired(key: str = "") -> DesiredRun:
    return DesiredRun(
        address=Address.run("train", key),
        backend="local",
        owner="run.yaml",
        spec=NO_FIELDS,
        until="success",
        on_active="error",
        resumes=True,
    )


def checks(found: dict[str, int | None], *others: str) -> tuple[Diagnostic, ...]:
    """Those of a matrix whose cells find these attempts; it is not known what the others find."""
    runs = [desired(key) for key in (*found, *others)]
    attempts = {
        run.address: AttemptRef(run.address, number) if number is not None else None
        for run, number in zip(runs, found.values(), strict=False)
    }
    return resume_checks(runs, attempts)


def said(found: dict[str, int | None], *others: str) -> list[str]:
    return [check.summary for check in checks(found, *others)]


def test_one_run_names_the_attempt() -> None:
    assert said({"": 7}) == ["it finds the output of `train#7` in SGPU_PREVIOUS_OUTPUT_DIR"]
    assert said({"": None}) == ["no earlier attempt left output: it starts from the beginning"]
    assert said({}, "") == []


def test_the_cells_of_a_matrix_are_told_together() -> None:
    assert said({"n=1": 2, "n=2": None, "n=3": 1}, "n=4") == [
        "2 of 3 runs of `train` find the output of their last attempt in SGPU_PREVIOUS_OUTPUT_DIR"
    ]
    assert said({"n=1": None, "n=2": None}) == [
        "no earlier attempt of `train` left output: all start from the beginning"
    ]
    assert [str(check.address) for check in checks({"n=1": 2})] == ['run.train["n=1"]']
