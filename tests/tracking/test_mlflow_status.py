import pytest

from sgpu_decl.tracking.mlflow_status import outcome


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("succeeded", "FINISHED"),
        ("cancelled", "KILLED"),
        ("failed", "FAILED"),
        ("lost", "FAILED"),
        ("running", "FAILED"),
        ("stopping", "FAILED"),
    ],
)
def test_an_end_is_what_the_attempt_says(state: str, status: str) -> None:
    assert outcome({"state": state}).status == status


def test_an_attempt_that_nobody_ended_is_lost() -> None:
    assert outcome({"state": "running"}).tags == {"sgpu.state": "lost"}


def test_a_failure_brings_its_class_and_cause() -> None:
    end = outcome(
        {
            "state": "failed",
            "ended_at": "2026-01-01T00:00:00.250Z",
            "class": "exception",
            "first_cause": {"rank": 3, "kind": "nan_loss", "summary": "ValueError: no"},
        }
    )
    assert end.ended_at == 1767225600250
    assert end.tags == {
        "sgpu.state": "failed",
        "sgpu.failure_class": "exception",
        "sgpu.failure_kind": "nan_loss",
        "sgpu.first_cause": "rank 3: ValueError: no",
    }


def test_a_cause_that_is_no_ranks_names_none() -> None:
    end = outcome({"state": "cancelled", "first_cause": {"rank": None, "summary": "it is gone"}})
    assert end.tags == {"sgpu.state": "cancelled", "sgpu.first_cause": "it is gone"}


def test_no_time_is_made_up() -> None:
    assert outcome({"state": "lost", "ended_at": None}).ended_at is None
    assert outcome({"state": "lost", "ended_at": "soon"}).ended_at is None
