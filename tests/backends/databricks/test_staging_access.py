"""A staging folder that cannot be written is said by plan, which writes nothing to find out.

Assumption: `folder-permissions`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.iam import AccessControlRequest, PermissionLevel

from sgpu_decl.api import Session
from sgpu_decl.errors import BackendError
from sgpu_decl.testing.workspace import WorkspaceServer

SHARED = "/Workspace/Shared/team"


def staged_at(project: Path, folder: str) -> None:
    block = f"backend:\n  kind: databricks\n  staging: {folder}\n"
    text = (project / "run.yaml").read_text().replace("backend: databricks\n", block)
    (project / "run.yaml").write_text(text)


def said(session: Callable[[], Session]) -> dict[str, tuple[str, int | None]]:
    return {
        check.code: (str(check.severity), check.place.line if check.place else None)
        for check in session().plan().plan.checks
        if check.code.startswith("staging")
    }


def asked(server: WorkspaceServer, token: str) -> int:
    found = server.recording.all(server.tenants.of_token(token).key)
    return len([item for item in found if "/permissions/directories/" in item.path])


def test_a_folder_that_others_alone_may_edit(session: Callable[[], Session], project: Path) -> None:
    client = WorkspaceClient()
    client.workspace.mkdirs(SHARED)
    number = str(client.workspace.get_status(SHARED).object_id)
    entries = [
        AccessControlRequest(user_name="eve@x.org", permission_level=PermissionLevel.CAN_MANAGE),
        AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_READ),
    ]
    client.permissions.set("directories", number, access_control_list=entries)
    staged_at(project, f"{SHARED}/.sgpu")

    assert said(session) == {"staging_unwritable": ("warning", 10)}

    opened = session()
    with pytest.raises(BackendError) as refused:
        opened.apply(opened.plan())
    assert refused.value.code == "permission_denied"
    edit = AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_EDIT)
    client.permissions.update("directories", number, access_control_list=[edit])
    assert said(session) == {}


def test_a_folder_that_may_be_written_is_asked_about_once(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    staged_at(project, f"{SHARED}/not/there/yet")
    assert said(session) == {}
    assert asked(server, token) == 1
    assert said(session) == {}
    assert asked(server, token) == 1, "it is remembered"


@pytest.mark.parametrize(
    ("folder", "finding"),
    [
        ("/Workspace/Shared/notes/.sgpu", {"staging_taken": ("error", 10)}),
        ("/Volumes/main/ml/nowhere/x", {"staging_missing": ("warning", 10)}),
    ],
)
def test_what_is_no_folder_is_said(
    session: Callable[[], Session], project: Path, tenant: Path, folder: str, finding: object
) -> None:
    WorkspaceClient().workspace.mkdirs("/Shared")
    (tenant / "Workspace" / "Shared" / "notes").write_text("not a folder")
    staged_at(project, folder)
    assert said(session) == finding


def test_a_volume_for_artifacts_that_is_missing(
    session: Callable[[], Session], project: Path, tenant: Path
) -> None:
    with (project / "run.yaml").open("a") as file:
        file.write("mlflow: {artifact_location: /Volumes/main/ml/artifacts/runs}\n")

    def places() -> list[int | None]:
        checks = session().plan().plan.checks
        return [
            check.place.line if check.place else None
            for check in checks
            if check.code == "artifact_volume_missing"
        ]

    assert places() == [9]
    (tenant / "Volumes" / "main" / "ml" / "artifacts").mkdir(parents=True)
    assert places() == []
