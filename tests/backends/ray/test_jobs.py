"""Jobs of launches: what is certain after a request that failed. The answers are those of Ray 2.60
and 2.49.1 (`ray/dashboard/modules/job/job_head.py`)."""

import time
from collections.abc import Iterator

import pytest

from sgpu_decl.backends.ray.launching.jobs import put_value, stop_job, submit_job
from sgpu_decl.errors import BackendError, OutcomeUnknown
from tests.backends.ray.answers import Answers, answering

JOBS = "/api/jobs/"
REFUSED = (500, "ValueError: Job with submission_id t already exists.")


@pytest.fixture
def answers() -> Iterator[Answers]:
    with answering({}) as running:
        yield running


def submit(answers: Answers) -> None:
    dashboard = answers.dashboard()
    try:
        submit_job(dashboard, "t", "package.zip", {})
    finally:
        dashboard.close()


@pytest.mark.parametrize("answer", [REFUSED, (502, "Bad Gateway"), (504, "Gateway Timeout"), "end"])
def test_a_request_that_may_become_a_job_still_has_an_unknown_outcome(
    answers: Answers, answer: object
) -> None:
    answers.by_path[JOBS] = answer

    with pytest.raises(OutcomeUnknown):
        submit(answers)


def test_a_request_that_is_wrong_becomes_no_job(answers: Answers) -> None:
    answers.by_path[JOBS] = (400, "TypeError: entrypoint must be a string")

    with pytest.raises(BackendError) as raised:
        submit(answers)

    assert not isinstance(raised.value, OutcomeUnknown)


@pytest.mark.parametrize("answer", [REFUSED, (502, "Bad Gateway"), "end"])
def test_a_job_that_the_cluster_has_was_submitted(answers: Answers, answer: object) -> None:
    answers.by_path |= {JOBS: answer, f"{JOBS}t": {"status": "PENDING"}}

    submit(answers)


def test_a_job_is_looked_for_after_a_submission_that_was_answered_too_late(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.api.dashboard_connection._SILENCE", 0.3)

    def submitted() -> tuple[int, str]:
        answers.by_path[f"{JOBS}t"] = {"status": "PENDING"}
        time.sleep(0.5)
        return 200, "{}"

    answers.by_path[JOBS] = submitted

    submit(answers)

    assert [request for request, _ in answers.requests] == [f"POST {JOBS}", f"GET {JOBS}t"]


def test_a_value_is_asked_for_before_it_is_there_so_that_ray_will_delete_it(
    answers: Answers,
) -> None:
    answers.by_path["/api/packages/gcs/k"] = (404, "Package gcs://k does not exist")
    dashboard = answers.dashboard()

    with pytest.raises(BackendError):  # this server has no values
        put_value(dashboard, "k", b"v")

    dashboard.close()
    assert [request for request, _ in answers.requests] == [
        "GET /api/packages/gcs/k",
        "PUT /api/packages/gcs/k",
    ]


@pytest.mark.parametrize("stopped", [True, False])
def test_ray_says_whether_there_was_something_to_stop(answers: Answers, stopped: bool) -> None:
    answers.by_path[f"{JOBS}t/stop"] = {"stopped": stopped}
    dashboard = answers.dashboard()

    assert stop_job(dashboard, "t") is stopped

    dashboard.close()
