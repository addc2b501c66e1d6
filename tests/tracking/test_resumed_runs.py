"""A tracker that comes after a loss finds the run of the earlier one, in each kind of store."""

from pathlib import Path

import pytest

from sgpu_decl.tracking.mlflow_status import TrackedOutcome
from sgpu_decl.tracking.stores.choice import open_tracking_store
from sgpu_decl.tracking.tracking_request import TrackingRequest
from tests.support import require
from tests.tracking.conftest import Door

require("mlflow")
pytestmark = pytest.mark.mlflow

END = TrackedOutcome(status="FAILED", ended_at=1_767_225_600_000, tags={"sgpu.state": "lost"})


def wanted(token: str, uri: str) -> TrackingRequest:
    return TrackingRequest(
        token=token,
        experiment="resumed",
        names_experiment=False,
        run_name=token,
        tracking_uri=uri,
        artifacts=None,
        home=None,
        system_metrics=False,
        params={},
        tags={"sgpu.token": token},
    )


def check(uri: str) -> None:
    from mlflow import MlflowClient

    store = open_tracking_store(uri, environ={})
    first, other = (store.create(wanted(token, uri)) for token in ("one", "other"))
    for run in (first, other):
        store.finish(run.run_id, END)

    assert store.resume(wanted("one", uri)) == first
    assert store.resume(wanted("none", uri)) is None

    client = MlflowClient(uri)
    states = [client.get_run(run.run_id).info.status for run in (first, other)]
    assert states == ["RUNNING", "FAILED"]


@pytest.mark.expensive
def test_by_sql_and_by_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr("sgpu_decl.tracking.stores.choice.REVISIONS", frozenset())
    check(f"sqlite:///{tmp_path}/other.db")


def test_by_rest(door: Door) -> None:
    check(door.uri)
