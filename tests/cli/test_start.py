"""`sgpu start` of what is not there."""

from tests.cli.conftest import Shell


def test_a_job_that_was_not_applied_is_missed_as_a_job(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml", "project: {name: p}\nruns:\n  a: {gpus: 1, type: CPU, command: 'true'}\n"
    )
    answer = sgpu.here("start", "nightly")
    assert answer.code == 1
    assert "no job matches `nightly`: there are none here" in answer.err
    assert "`sgpu apply` makes the jobs" in answer.err
