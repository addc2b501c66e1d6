"""What the emulator gives nodes and clients in a workspace that is not as expected."""

from pathlib import Path

import pytest

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import WorkspaceServer
from tests.testing.workspace.conftest import client_of
from tests.testing.workspace.executing.conftest import User


@pytest.mark.expensive
def test_credentials_and_links_are_as_the_profile_says(tmp_path: Path) -> None:
    profile = Profile({"node-credentials": False, "managed-artifacts": False})
    with WorkspaceServer(tmp_path, profile=profile) as server:
        user = User(client_of(server.url, server.new_token()))
        place = {"mlflow_artifact_location": "dbfs:/Volumes/main/default/files/runs"}
        run_id = user.submit("test ! -e ~/.databrickscfg\n", ai=place)
        assert user.ended(run_id).state.result_state.value == "SUCCESS"
        run = user.output(run_id).ai_runtime_task_output.mlflow_run_id
        where = "/api/2.0/mlflow/artifacts/credentials-for-read"
        answer = user.client.api_client.do("GET", where, query={"run_id": run, "path": ["x"]})
    assert len(answer["credential_infos"]) == 1
