"""`parameters`: a YAML file that ranks find by HYPERPARAMETERS_PATH."""

import pytest

from tests.cli.conftest import Shell

RUN = """\
name: p
gpus: 1
type: CPU
command: 'cat "$HYPERPARAMETERS_PATH"; rm "$HYPERPARAMETERS_PATH" || true'
parameters: {lr: 1e-5, layers: [1, 2]}
mlflow: {enabled: false}
"""
FILE = "layers:\n- 1\n- 2\nlr: 1.0e-05\n"


def test_ranks_find_their_parameters_and_the_plan_shows_what_changed(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)

    assert FILE in sgpu.ran("apply", "-y").out
    sgpu.write("run.yaml", RUN.replace("1e-5", "2e-5"))
    plan = sgpu("plan").out
    assert "parameters.lr  1e-05 -> 2e-05  run.yaml:5:" in plan
    assert "p#2" in plan


@pytest.mark.expensive
def test_a_restart_finds_the_file_though_ranks_removed_it(sgpu: Shell) -> None:
    fails = RUN.replace("|| true'", "|| true; exit $((1 - SGPU_TRY))'").replace(
        "gpus: 2", "gpus: 1"
    )
    again = fails.replace("SGPU_TRY", "TORCHELASTIC_RESTART_COUNT")
    sgpu.write("run.yaml", again + "retry: {max: 1, on: [error], backoff: 0s}\n")

    assert sgpu.ran("apply", "-y").out.count(FILE) == 2


@pytest.mark.expensive
def test_matrix_values_reach_the_file(sgpu: Shell) -> None:
    run = RUN.replace("lr: 1e-5", "lr: '${matrix.lr}'")
    sgpu.write("run.yaml", run + "matrix: {lr: [0.5, 2]}\n")

    done = sgpu.ran("apply", "-y")
    assert "lr: 0.5" in done.out
    assert "lr: 2" in done.out


def test_the_variable_is_set_once(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "env: {variables: {HYPERPARAMETERS_PATH: /x}}\n")

    done = sgpu("plan")

    assert done.code == 1
    assert "`parameters` sets `HYPERPARAMETERS_PATH`, and `env.variables` does, too" in done.err
    assert "run.yaml:7:" in done.err
