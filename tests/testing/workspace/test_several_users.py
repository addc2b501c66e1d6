"""A workspace that several users share: each has a home, and sees what was granted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.errors import NotFound, PermissionDenied
from databricks.sdk.service.jobs import JobAccessControlRequest as RunGrant
from databricks.sdk.service.jobs import JobPermissionLevel as RunLevel
from databricks.sdk.service.workspace import (
    ImportFormat,
    WorkspaceObjectAccessControlRequest,
    WorkspaceObjectPermissionLevel,
)

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.tenant import User as WorkspaceUser
from tests.testing.workspace.conftest import client_of
from tests.testing.workspace.executing.conftest import User

USERS = {
    f"dapi-{name}": WorkspaceUser(name=f"{name}@example.org", workspace="team")
    for name in ("ann", "bob")
}
HOME = "/Workspace/Users/ann@example.org"
SHARED = "/Workspace/Shared"
WITHOUT_GPUS = ExecutionSettings(capacity={"GPU_1xA10": 0})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WorkspaceServer]:
    with WorkspaceServer(tmp_path, users=USERS, execution=WITHOUT_GPUS) as running:
        yield running


@pytest.fixture
def ann(server: WorkspaceServer) -> Any:
    return client_of(server.url, "dapi-ann")


@pytest.fixture
def bob(server: WorkspaceServer) -> Any:
    return client_of(server.url, "dapi-bob")


def test_each_user_has_a_home_that_the_other_cannot_read(ann: Any, bob: Any) -> None:
    assert {one.current_user.me().user_name for one in (ann, bob)} == {
        user.name for user in USERS.values()
    }
    assert ann.current_user.me().id != bob.current_user.me().id
    ann.workspace.upload(f"{HOME}/note", b"secret", format=ImportFormat.AUTO)
    for read in (
        lambda: bob.workspace.get_status(f"{HOME}/note"),
        lambda: list(bob.workspace.list(HOME)),
        lambda: bob.workspace.download(f"{HOME}/note"),
        lambda: bob.workspace.upload(f"{HOME}/other", b"x", format=ImportFormat.AUTO),
    ):
        with pytest.raises(PermissionDenied, match=r"bob@example\.org"):
            read()


def test_what_is_shared_or_granted_is_read(ann: Any, bob: Any) -> None:
    ann.workspace.upload(f"{SHARED}/note", b"for all", format=ImportFormat.AUTO)
    assert bob.workspace.download(f"{SHARED}/note").read() == b"for all"
    ann.workspace.mkdirs(f"{HOME}/open")
    ann.workspace.upload(f"{HOME}/open/note", b"for bob", format=ImportFormat.AUTO)
    number = str(ann.workspace.get_status(f"{HOME}/open").object_id)
    grant = WorkspaceObjectAccessControlRequest(
        user_name="bob@example.org", permission_level=WorkspaceObjectPermissionLevel.CAN_READ
    )
    ann.workspace.update_permissions("directories", number, access_control_list=[grant])
    assert bob.workspace.download(f"{HOME}/open/note").read() == b"for bob"


def _submitted(client: Any, *grants: RunGrant) -> int:
    """A run that waits for GPUs, of which there are none."""
    user = User(client)
    task = user.task(f"/Workspace/Users/{client.current_user.me().user_name}")
    lists = [grant.as_dict() for grant in grants]
    body = user.payload(task, idempotency_token="one", access_control_list=lists)
    return int(user.post("runs/submit", body)["run_id"])


def test_a_run_is_seen_and_cancelled_by_whom_it_names(ann: Any, bob: Any) -> None:
    hidden = _submitted(ann)
    with pytest.raises(PermissionDenied):
        bob.jobs.get_run(hidden)
    assert list(bob.jobs.list_runs()) == []
    assert _submitted(ann) == hidden
    own = _submitted(bob)
    assert own != hidden  # nobody knows whether a token is found for another user
    assert [run.run_id for run in bob.jobs.list_runs()] == [own]


def test_a_run_that_may_be_viewed_may_not_be_cancelled(ann: Any, bob: Any) -> None:
    grant = RunGrant(user_name="bob@example.org", permission_level=RunLevel.CAN_VIEW)
    seen = _submitted(ann, grant)
    assert bob.jobs.get_run(seen).creator_user_name == "ann@example.org"
    with pytest.raises(PermissionDenied, match="Manage Run"):
        bob.jobs.cancel_run(seen)


def _workspace(root: Path, profile: Profile) -> WorkspaceServer:
    return WorkspaceServer(root, users=USERS, profile=profile, execution=WITHOUT_GPUS)


def test_a_profile_hides_what_may_not_be_seen(tmp_path: Path) -> None:
    missing = "RESOURCE_DOES_NOT_EXIST"
    profile = Profile(found={"hidden-folder": missing, "hidden-run": missing})
    with _workspace(tmp_path, profile) as server:
        ann, bob = (client_of(server.url, f"dapi-{name}") for name in ("ann", "bob"))
        ann.workspace.upload(f"{HOME}/note", b"secret", format=ImportFormat.AUTO)
        with pytest.raises(NotFound):
            bob.workspace.download(f"{HOME}/note")
        run = _submitted(ann)
        with pytest.raises(NotFound):
            bob.jobs.get_run(run)


def test_a_profile_finds_a_run_by_the_token_of_another_user(tmp_path: Path) -> None:
    profile = Profile(found={"token-of-another-user": True})
    with _workspace(tmp_path, profile) as server:
        ann, bob = (client_of(server.url, f"dapi-{name}") for name in ("ann", "bob"))
        assert _submitted(ann) == _submitted(bob)


def test_a_server_on_the_same_root_has_the_workspace_of_its_users(tmp_path: Path) -> None:
    with WorkspaceServer(tmp_path, users=USERS) as server:
        client_of(server.url, "dapi-ann").workspace.upload(
            f"{SHARED}/x", b"x", format=ImportFormat.AUTO
        )
    with WorkspaceServer(tmp_path, users=USERS) as server:
        assert client_of(server.url, "dapi-bob").workspace.download(f"{SHARED}/x").read() == b"x"
