"""What a workspace offers, and what clients tell of themselves."""

from pathlib import Path

import pytest
from databricks.sdk.errors import NotFound

from sgpu_decl.testing.workspace import Capacity, Offers, WorkspaceServer
from tests.testing.workspace.conftest import client_of

OFFERS = Offers(
    accelerators=("GPU_1xA10",),
    capacities=tuple(
        Capacity(id=name, accelerator_type="GPU_8xH100", accelerator_count=16, used=8)
        for name in "abc"
    ),
    policies=(("1-1", "team"), ("2-2", "lab")),
)


def test_a_server_offers_what_it_was_told(tmp_path: Path, token: str) -> None:
    with WorkspaceServer(tmp_path, offers=OFFERS) as server:
        do = client_of(server.url, server.admit(token)).api_client.do
        options = do("GET", "/api/2.0/ai-compute-manager/compute-options")
        assert options == {"compute_options": [{"hardware_accelerator": "GPU_1xA10"}]}
        lab = do("GET", "/api/2.0/serverless-policies", query={"filter_by": {"policy_name": "LA"}})
        assert lab == {"policies": [{"policy_id": "2-2", "policy_name": "lab"}]}
        path = "/api/2.0/ai-training/provisioned-capacities"
        first = do("GET", path, query={"page_size": 2})
        rest = do("GET", path, query={"page_size": 2, "page_token": first["next_page_token"]})
        found = first["provisioned_capacities"] + rest["provisioned_capacities"]
        assert [one["name"] for one in found] == [f"provisioned-capacities/{one}" for one in "abc"]
        assert "next_page_token" not in rest
        usage = do("GET", f"{path}/b")["status"]["usage"]
        assert usage == {"used_accelerator_count": "8", "idle_accelerator_count": "8"}
        with pytest.raises(NotFound, match="provisioned-capacities/z"):
            do("GET", f"{path}/z")


def test_base_environments_are_known_to_the_sdk(tmp_path: Path, token: str) -> None:
    with WorkspaceServer(tmp_path) as server:
        client = client_of(server.url, server.admit(token))
        names = [one.name for one in client.environments.list_workspace_base_environments()]
        assert "workspace-base-environments/databricks_ai_v5" in names
        one = client.environments.get_workspace_base_environment(name=names[0])
        assert one.name == names[0]
        with pytest.raises(NotFound):
            client.environments.get_workspace_base_environment("workspace-base-environments/none")
        said = client.api_client.do("POST", "/telemetry-ext", body={"protoLogs": ["a", "b"]})
        assert said["numProtoSuccess"] == 2
