"""`after` and `${run.NAME.output}`: what is wrong is told at its place."""

from collections.abc import Callable
from typing import Any

import pytest

RUN = "gpus: 1, type: CPU"


def project(**runs: str) -> str:
    """A project of runs by their names: each has the given fields, and the command `true`."""
    lines = ["project: {name: p}", "runs:"]
    for name, fields in runs.items():
        command = "" if "command" in fields else 'command: "true", '
        lines.append(f"  {name}: {{{command}{RUN}, {fields}}}")
    return "\n".join(lines) + "\n"


def test_runs_come_after_each_other(good: Callable[..., Any]) -> None:
    text = project(
        evaluate="after: [run.train], command: [evaluate, '${run.train.output}/w.pt']",
        train="after: [prepare], env: {variables: {DATA: '${run.prepare.output}'}}",
        prepare="",
    )
    runs = good(text, "sgpu.yml").runs
    assert [run.config.after for run in runs] == [("train",), ("prepare",), ()]
    assert runs[0].config.command == ("evaluate", "${run.train.output}/w.pt")


@pytest.mark.parametrize(
    ("runs", "path"),
    [
        ({"a": "after: [a]"}, "`a` comes after itself"),
        ({"a": "after: [b]", "b": "after: [a]"}, "`a` → `b` → `a`"),
        ({"a": "", "c": "after: [d, a]", "d": "after: [c]", "e": "after: [c]"}, "`c` → `d` → `c`"),
        ({"x": "after: [y]", "y": "after: [z]", "z": "after: [y]"}, "`y` → `z` → `y`"),
    ],
)
def test_a_cycle_is_shown_as_its_path(
    bad: Callable[..., Any], runs: dict[str, str], path: str
) -> None:
    (found,) = bad(project(**runs), "sgpu.yml")
    assert found.code == "cyclic_runs"
    assert found.summary.endswith(path)
    assert found.place is not None
    assert len(found.related) == path.count("→") - 1 if "→" in path else not found.related


@pytest.mark.parametrize(
    ("axis", "c", "end"),
    [("b, c", "after: [a]", "`a` → `c` → `a`"), ("b, a", "", "`a` comes after itself")],
)
def test_a_cycle_through_any_cell_of_a_matrix_is_told(
    bad: Callable[..., Any], axis: str, c: str, end: str
) -> None:
    a = f"matrix: {{up: [{axis}]}}, after: ['${{matrix.up}}']"
    (found,) = bad(project(a=a, b="", c=c), "sgpu.yml")
    assert (found.code, found.summary.endswith(end)) == ("cyclic_runs", True)
    assert str(found.place).startswith("sgpu.yml:3:")


def test_each_cycle_is_told(bad: Callable[..., Any]) -> None:
    text = project(a="after: [b]", b="after: [a]", c="after: [d]", d="after: [c]")
    assert [found.code for found in bad(text, "sgpu.yml")] == ["cyclic_runs"] * 2


def test_a_run_that_is_named_as_before_is_told_with_its_new_name(bad: Callable[..., Any]) -> None:
    (found,) = bad(project(model="renamed_from: train", evaluate="after: [train]"), "sgpu.yml")
    assert (found.code, found.hint) == ("unknown_run", "did you mean `model`?")


def test_an_unknown_run_is_told_with_the_nearest(bad: Callable[..., Any]) -> None:
    (found,) = bad(project(train="", evaluate="after: [trian]"), "sgpu.yml")
    assert (found.code, found.hint) == ("unknown_run", "did you mean `train`?")
    assert str(found.place).startswith("sgpu.yml:4:")


def test_a_run_file_has_no_other_run(bad: Callable[..., Any]) -> None:
    text = f"{{name: evaluate, command: x, {RUN}, after: [train]}}\n"
    (found,) = bad(text)
    assert (found.code, found.hint) == (
        "unknown_run",
        "it is a key under `runs` of a project file",
    )


@pytest.mark.parametrize(
    ("fields", "summary"),
    [
        (
            "command: [x, '${run.train.output}']",
            "`${run.train.output}` needs the output of a run that `after` does not name",
        ),
        (
            "after: [train], description: '${run.train.output}'",
            "`${run.train.output}` is not filled in here",
        ),
        (
            "after: [sweep], command: [x, '${run.sweep.output}']",
            "`${run.sweep.output}` is not one folder: `sweep` has a matrix",
        ),
        (
            "after: [train], command: [x, '${run.train#3.output}']",
            "`${run.train#3.output}` names an attempt",
        ),
    ],
)
def test_an_output_that_cannot_be_filled_in_is_an_error(
    bad: Callable[..., Any], fields: str, summary: str
) -> None:
    sweep = "command: [x, '${matrix.lr}'], matrix: {lr: [1, 2]}"
    (found,) = bad(project(evaluate=fields, train="", sweep=sweep), "sgpu.yml")
    assert (found.code, found.summary) == ("bad_output", summary)


@pytest.mark.parametrize(
    "written",
    [
        '${run.sweep["lr=1"].output}',
        "${run.train.output/w.pt}",
        "${run.train}",
        "${run.train.output",
    ],
)
@pytest.mark.parametrize("field", ["command: [x, 'W']", "command: x, env: {variables: {A: 'W'}}"])
def test_what_is_nearly_an_output_is_an_error(
    bad: Callable[..., Any], written: str, field: str
) -> None:
    evaluate = f"after: [train], {field.replace('W', written)}"
    sweep = "command: [x, '${matrix.lr}'], matrix: {lr: [1, 2]}"
    (found,) = bad(project(evaluate=evaluate, train="", sweep=sweep), "sgpu.yml")
    assert (found.code, found.summary) == (
        "bad_output",
        f"`{written}` is not the output of a run, so it is not filled in",
    )


def test_a_misspelt_output_in_a_list_of_words_is_told(bad: Callable[..., Any]) -> None:
    evaluate = "after: [train], command: [x, '${run.train.outputs}']"
    (found,) = bad(project(evaluate=evaluate, train=""), "sgpu.yml")
    assert (found.code, found.hint) == ("near_reference", "did you mean `${run.train.output}`?")


def test_an_output_in_a_key_is_checked_like_one_in_a_value(bad: Callable[..., Any]) -> None:
    evaluate = "entrypoint: x.py, command: null, args: {'${run.train.output}': 1}"
    (found,) = bad(project(evaluate=evaluate, train=""), "sgpu.yml")
    assert found.summary.endswith("needs the output of a run that `after` does not name")
    assert str(found.place).startswith("sgpu.yml:3:")


def test_a_shell_would_refuse_what_is_nearly_an_output(bad: Callable[..., Any]) -> None:
    for written in ("${run.train}", "${run.train.output/w.pt}"):
        (found,) = bad(project(a=f"command: 'echo {written}'", train=""), "sgpu.yml")
        assert found.code == "near_reference"


def test_references_of_other_programs_stay(good: Callable[..., Any]) -> None:
    (run,) = good(project(train="command: [x, '${run.dir}', '${hydra.run.dir}']"), "sgpu.yml").runs
    assert run.config.command == ("x", "${run.dir}", "${hydra.run.dir}")


@pytest.mark.parametrize(
    "written", ["${runs.train.output}", "${run.train.output_dir}", "${{ run.train.outputs }}"]
)
def test_a_misspelt_output_is_told(bad: Callable[..., Any], written: str) -> None:
    run = f"entrypoint: x.py, command: null, args: ['{written}'], after: [train]"
    (found,) = bad(project(train="", evaluate=run), "sgpu.yml")
    assert (found.code, found.hint) == ("near_reference", "did you mean `${run.train.output}`?")
