"""Our SQL against the tables that MLflow's own migrations make, revision by revision."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.tracking.mlflow_status import TrackedOutcome
from sgpu_decl.tracking.stores.sqlite import REVISIONS, SqlRunStore, revision
from sgpu_decl.tracking.tracking_request import TrackingRequest
from tests.support import require

require("mlflow")
pytestmark = [pytest.mark.mlflow, pytest.mark.expensive]


def asked(path: Path) -> TrackingRequest:
    return TrackingRequest(
        token="T", experiment="e", names_experiment=False, run_name="train#1",
        tracking_uri=f"sqlite:///{path}", artifacts=None, home=str(path.parent),
        system_metrics=False, params={"sgpu.gpus": "2"}, tags={"sgpu.address": "run.train"},
    )  # fmt: skip


def test_a_run_can_be_made_and_ended_in_every_revision_that_is_known(tmp_path: Path) -> None:
    import sqlalchemy
    from alembic import command
    from alembic.script import ScriptDirectory
    from mlflow import MlflowClient
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base

    path = tmp_path / "mlflow.db"
    uri = f"sqlite:///{path}"
    engine = sqlalchemy.create_engine(uri)
    Base.metadata.create_all(engine)
    config = _get_alembic_config(uri)
    order = [item.revision for item in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    assert set(order) >= REVISIONS
    assert order[-1] in REVISIONS, "this MLflow is newer: look at its tables, then add its revision"
    made = []
    for step in order[order.index("6953534de441") :]:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, step)
        assert revision(path) == step
        store = SqlRunStore(path)
        run = store.create(asked(path))
        store.record(run.run_id, asked(path))
        store.finish(
            run.run_id, TrackedOutcome(status="FAILED", ended_at=5, tags={"sgpu.state": "lost"})
        )
        made.append(run.run_id)
    client = MlflowClient(uri)
    for run_id in made:
        read = client.get_run(run_id)
        info = read.info
        assert (info.status, info.end_time, info.run_name) == ("FAILED", 5, "train#1")
        assert read.data.params == {"sgpu.gpus": "2"}
        assert read.data.tags["sgpu.state"] == "lost"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
