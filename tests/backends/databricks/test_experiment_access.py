"""Those whom a run's permissions name may see its MLflow experiment too.

Assumption: `experiment-permissions`.
"""

from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.model.attempt import AttemptState
from tests.backends.databricks.bench import DatabricksBench, Launched

SHARED = """\
mlflow: {experiment: /Shared/team/exp}
permissions:
- {level: view, group: users}
- {level: run, user: eve@example.org}
"""


def test_permissions_reach_the_experiment_before_the_run_is_there(bench: DatabricksBench) -> None:
    bench.declare(more=SHARED)
    opened = bench.open()
    plan = opened.plan()
    check = {item.code: item for item in plan.plan.checks}["experiment_shared"]
    assert (str(check.severity), check.place and check.place.line) == ("info", 10)
    assert "`/Shared/team/exp`" in check.summary
    assert "`users` CAN_READ, `eve@example.org` CAN_EDIT" in check.summary

    assert opened.stage(plan)[1] == ()

    client = WorkspaceClient()
    made = client.experiments.get_by_name("/Shared/team/exp").experiment
    assert made is not None
    listed: Any = client.permissions.get("experiments", str(made.experiment_id)).access_control_list
    levels = {
        item.user_name or item.group_name: item.all_permissions[0].permission_level.value
        for item in listed
    }
    assert levels.pop(client.current_user.me().user_name) == "CAN_MANAGE"
    assert levels == {"users": "CAN_READ", "eve@example.org": "CAN_EDIT"}


@pytest.mark.expensive
def test_an_experiment_that_cannot_be_shared_is_a_warning_and_the_run_goes_on(
    bench: DatabricksBench,
) -> None:
    bench.declare(more=SHARED)
    experiments = "PATCH /api/2.0/permissions/experiments/*"
    bench.refuse(experiments, 403, "PERMISSION_DENIED", "this is not yours", times=0)
    opened = bench.open()
    plan = opened.plan()

    (warning,) = opened.stage(plan)[1]

    assert (str(warning.severity), warning.code) == ("warning", "experiment_not_shared")
    assert "this is not yours" in warning.summary
    run = Launched(opened, *opened.apply(plan).launched).ended()
    assert run.status.state is AttemptState.SUCCEEDED
