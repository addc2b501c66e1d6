"""A staging folder that cannot be written is said by plan, which writes nothing to find out.

Assumption: `folder-permissions`.
"""

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.iam import AccessControlRequest, PermissionLevel

from sgpu_decl.errors import BackendError
from tests.backends.databricks.bench import DatabricksBench

SHARED = "/Workspace/Shared/team"


def staged_at(bench: DatabricksBench, folder: str) -> None:
    block = f"backend:\n  kind: databricks\n  staging: {folder}\n"
    bench.declare("backend: databricks\n", block)


def said(bench: DatabricksBench, codes: str = "staging") -> dict[str, tuple[str, int | None]]:
    """The severity and the line of each check whose code begins so."""
    return {
        code: (str(check.severity), check.place.line if check.place else None)
        for code, check in bench.checks().items()
        if code.startswith(codes)
    }


def test_a_folder_that_others_alone_may_edit(bench: DatabricksBench) -> None:
    client = WorkspaceClient()
    client.workspace.mkdirs(SHARED)
    number = str(client.workspace.get_status(SHARED).object_id)
    entries = [
        AccessControlRequest(user_name="eve@x.org", permission_level=PermissionLevel.CAN_MANAGE),
        AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_READ),
    ]
    client.permissions.set("directories", number, access_control_list=entries)
    staged_at(bench, f"{SHARED}/.sgpu")

    assert said(bench) == {"staging_unwritable": ("warning", 10)}

    with pytest.raises(BackendError) as refused:
        bench.launch()
    assert refused.value.code == "permission_denied"
    edit = AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_EDIT)
    client.permissions.update("directories", number, access_control_list=[edit])
    assert said(bench) == {}


def test_a_folder_that_may_be_written_is_asked_about_once(bench: DatabricksBench) -> None:
    staged_at(bench, f"{SHARED}/not/there/yet")
    for _ in ("asked", "remembered"):
        assert said(bench) == {}
        assert len(bench.requests("/permissions/directories/")) == 1


@pytest.mark.parametrize(
    ("folder", "finding"),
    [
        ("/Workspace/Shared/notes/.sgpu", {"staging_taken": ("error", 10)}),
        ("/Volumes/main/ml/nowhere/x", {"staging_missing": ("warning", 10)}),
    ],
)
def test_what_is_no_folder_is_said(bench: DatabricksBench, folder: str, finding: object) -> None:
    WorkspaceClient().workspace.mkdirs("/Shared")
    (bench.tenant.folder / "Workspace" / "Shared" / "notes").write_text("not a folder")
    staged_at(bench, folder)
    assert said(bench) == finding


def test_a_volume_for_artifacts_that_is_missing(bench: DatabricksBench) -> None:
    bench.declare(more="mlflow: {artifact_location: /Volumes/main/ml/artifacts/runs}\n")

    assert [line for _, line in said(bench, "artifact_volume_missing").values()] == [9]
    (bench.tenant.folder / "Volumes" / "main" / "ml" / "artifacts").mkdir(parents=True)
    assert said(bench, "artifact_volume_missing") == {}
