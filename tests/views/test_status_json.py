"""What `status -o json` says of an attempt, from what a backend says of it."""

from typing import Any

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import view_in
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord
from sgpu_decl.views.status_json import status_object

RECORD = LaunchRecord(
    ref=AttemptRef(Address.run("train"), 8),
    backend="local",
    token="",
    lineage="",
    owner="run.yaml",
    inputs=LaunchInputs(spec=NO_FIELDS, fingerprint=""),
)
OUTCOME: dict[str, Any] = {
    "state": "failed",
    "started_at": "2026-01-02T11:00:00.120Z",
    "ended_at": "2026-01-02T11:00:03.000Z",
    "exit_code": 1,
    "ranks": [
        {"rank": 0, "node_rank": 0, "state": "failed", "exit_code": 1, "signal": None},
        {"rank": 1, "node_rank": 0, "state": "stopped", "exit_code": None, "signal": "SIGTERM",
         "dropped_bytes": 7},
    ],
    "first_cause": {
        "rank": 0, "class": "exception", "kind": None, "summary": "ValueError: no",
        "traceback": None, "simultaneous": [1], "stacks": [{"rank": 0, "file": "fault.log"}],
    },
    "restart": 1,
    "restarts": [
        {"restart": 1, "at": "2026-01-02T11:00:01.000Z", "starts_at": "2026-01-02T11:00:02.500Z",
         "rank": 0, "class": "exception", "kind": "nan_loss", "summary": "ValueError: first"},
    ],
    "working_files": {"names": ["a"], "count": 1},
    "metrics": {"loss": 0.5, "eval/acc": 1.0},
    "metrics_problem": "line 3 of `metrics.json` is no JSON",
}  # fmt: skip


def test_what_an_agent_says_is_said_again_byte_for_byte() -> None:
    said = status_object(view_in(RECORD, {**OUTCOME, "class": "exception"}))

    names = {"address": "run.train", "name": "train", "attempt": 8, "backend": "local", "links": {}}
    assert said == {**names, **OUTCOME}
    assert list(said) == [
        "address", "name", "attempt", "state", "backend", "started_at", "ended_at", "exit_code",
        "ranks", "first_cause", "restart", "restarts", "links", "working_files",
        "metrics", "metrics_problem",
    ]  # fmt: skip


def test_a_status_object_that_was_kept_gives_the_same_view() -> None:
    view = view_in(RECORD, {**OUTCOME, "class": "exception"})

    assert view_in(RECORD, {**status_object(view), "class": "exception"}) == view
