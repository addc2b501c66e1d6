"""Permissions of jobs and experiments through the SDK."""

from typing import Any

import pytest
from databricks.sdk.errors import BadRequest, NotFound
from databricks.sdk.service.iam import AccessControlRequest, PermissionLevel


def listed(permissions: Any) -> dict[str, str]:
    return {
        one.user_name or one.group_name: one.all_permissions[0].permission_level.value
        for one in permissions.access_control_list
    }


def test_whoever_made_a_job_owns_it(client: Any) -> None:
    me = client.current_user.me().user_name
    found = client.permissions.get("jobs", "12")
    assert (found.object_id, found.object_type) == ("/jobs/12", "job")
    assert listed(found) == {me: "IS_OWNER"}


def test_a_list_is_added_to_and_replaced(client: Any) -> None:
    me = client.current_user.me().user_name
    view = AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_VIEW)
    manage = AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_MANAGE)
    owner = AccessControlRequest(user_name="eve@x.org", permission_level=PermissionLevel.IS_OWNER)
    found = client.permissions.update("jobs", "1", access_control_list=[view])
    assert listed(found) == {me: "IS_OWNER", "users": "CAN_VIEW"}
    client.permissions.update("jobs", "1", access_control_list=[manage])
    assert listed(client.permissions.get("jobs", "1")) == {me: "IS_OWNER", "users": "CAN_MANAGE"}
    found = client.permissions.update("jobs", "1", access_control_list=[owner])
    assert listed(found) == {"users": "CAN_MANAGE", "eve@x.org": "IS_OWNER"}
    found = client.permissions.set("jobs", "1", access_control_list=[owner])
    assert listed(found) == {"eve@x.org": "IS_OWNER"}
    nobody = AccessControlRequest(group_name="no one", permission_level=PermissionLevel.CAN_VIEW)
    with pytest.raises(NotFound, match=r"GroupName\(no one\) does not exist"):
        client.permissions.update("jobs", "1", access_control_list=[nobody])
    with pytest.raises(BadRequest, match="exactly one owner"):
        client.permissions.set("jobs", "1", access_control_list=[view])
    assert listed(client.permissions.get("jobs", "1")) == {"eve@x.org": "IS_OWNER"}


def test_levels_are_those_of_the_kind(client: Any) -> None:
    edit = AccessControlRequest(group_name="users", permission_level=PermissionLevel.CAN_EDIT)
    found = client.permissions.update("experiments", "7", access_control_list=[edit])
    assert listed(found)["users"] == "CAN_EDIT"
    with pytest.raises(BadRequest, match="CAN_VIEW"):
        client.permissions.update("jobs", "7", access_control_list=[edit])
