"""Those whom a run's permissions name may see its MLflow experiment too.

Assumption: `experiment-permissions`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.support import PATIENCE

SHARED = """\
mlflow: {experiment: /Shared/team/exp}
permissions:
- {level: view, group: users}
- {level: run, user: eve@example.org}
"""


def test_permissions_reach_the_experiment_before_the_run_is_there(
    session: Callable[[], Session], project: Path
) -> None:
    with (project / "run.yaml").open("a") as file:
        file.write(SHARED)
    opened = session()
    plan = opened.plan()
    check = {item.code: item for item in plan.plan.checks}["experiment_shared"]
    assert (str(check.severity), check.place and check.place.line) == ("info", 10)
    assert "`/Shared/team/exp`" in check.summary
    assert "`users` CAN_READ, `eve@example.org` CAN_EDIT" in check.summary

    assert opened.stage(plan)[1] == ()

    client = WorkspaceClient()
    made = client.experiments.get_by_name("/Shared/team/exp").experiment
    assert made is not None
    listed = client.permissions.get("experiments", str(made.experiment_id)).access_control_list
    levels: Any = {
        item.user_name or item.group_name: item.all_permissions[
            0
        ].permission_level.value  # the SDK's
        for item in listed or ()
    }
    assert levels.pop(client.current_user.me().user_name) == "CAN_MANAGE"
    assert levels == {"users": "CAN_READ", "eve@example.org": "CAN_EDIT"}


@pytest.mark.expensive
def test_an_experiment_that_cannot_be_shared_is_a_warning_and_the_run_goes_on(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    with (project / "run.yaml").open("a") as file:
        file.write(SHARED)
    refusal = Fault(
        pattern="PATCH /api/2.0/permissions/experiments/*",
        effect=Effect.STATUS,
        status_code=403,
        body={"error_code": "PERMISSION_DENIED", "message": "this is not yours"},
        times=0,
    )
    server.faults.add(refusal, tenant=server.tenants.of_token(token).key)
    opened = session()
    plan = opened.plan()

    (warning,) = opened.stage(plan)[1]

    assert (str(warning.severity), warning.code) == ("warning", "experiment_not_shared")
    assert "this is not yours" in warning.summary
    (ref,) = opened.apply(plan).launched
    (status,) = opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    assert status.state is AttemptState.SUCCEEDED
