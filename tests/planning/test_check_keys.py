"""Cells of a matrix share their checks, unless a field differs that a check may look into."""

import pytest

from sgpu_decl.planning.finding_places import check_key
from tests.reading import read

RUN = """\
name: train
gpus: 1
type: CPU
command: [train]
matrix: {axis: [a, b], lr: [1, 2]}
"""


def keys(text: str) -> int:
    loaded, findings = read(
        text.encode(), "run.yaml", target=None, variables=(), sets=(), environ={}, git=dict
    )
    assert loaded is not None, findings
    assert len(loaded.runs) == 4
    return len({check_key(run) for run in loaded.runs})


@pytest.mark.parametrize(
    "fields",
    [
        "env: {variables: {A: '${matrix.axis}', LR: '${matrix.lr}'}}",
        "tags: {a: '${matrix.axis}'}\nenv: {variables: {LR: '${matrix.lr}'}}",
        "description: '${matrix.axis}'\nparameters: {lr: '${matrix.lr}'}",
    ],
)
def test_cells_that_differ_in_what_no_check_looks_into_share_a_key(fields: str) -> None:
    assert keys(RUN + fields) == 1


def test_cells_that_differ_in_arguments_share_a_key() -> None:
    assert keys(RUN.replace("command: [train]", "entrypoint: train.py:main")) == 1


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("python train.py --lr ${matrix.lr} seed=${matrix.lr}", 1),
        ("[python, train.py, --lr, '${matrix.lr}e-3', '-${matrix.lr}.5']", 1),
        ("python train${matrix.lr}.py", 2),
        ("python train.py --config ${matrix.lr}.yaml", 2),
        ("python train.py ${matrix.axis}", 2),
    ],
)
def test_numbers_of_a_command_do_not_count(command: str, count: int) -> None:
    axis = "" if "axis" in command else "a: '${matrix.axis}', "
    lr = "" if "lr" in command else "lr: '${matrix.lr}'"
    assert keys(RUN.replace("[train]", command) + f"tags: {{{axis}{lr}}}") == count


@pytest.mark.parametrize(
    "fields",
    [
        "code: {root: '${matrix.axis}'}",
        "env: {secrets: {TOKEN: 'env:${matrix.axis}'}, variables: {LR: '${matrix.lr}'}}",
        "env: {dependencies: ['${matrix.axis}']}",
        "mlflow: {experiment: '/Shared/${matrix.axis}'}",
        "permissions: [{level: view, group: '${matrix.axis}'}]",
        "on_finish: {failure: ['${matrix.axis}@b.c']}",
        "pool: '${matrix.axis}'",
    ],
)
def test_cells_that_differ_in_another_field_have_keys_of_their_own(fields: str) -> None:
    unused = "" if "matrix.lr" in fields else "\ntags: {lr: '${matrix.lr}'}"
    assert keys(RUN + fields + unused) == 2
