"""Secret scopes through the SDK."""

import base64
from typing import Any

import pytest
from databricks.sdk.errors import NotFound
from databricks.sdk.errors.platform import InvalidParameterValue, ResourceAlreadyExists
from databricks.sdk.service.workspace import AclPermission


def test_secrets_are_put_got_listed_and_deleted(client: Any) -> None:
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "token", string_value="first")
    client.secrets.put_secret("ml", "token", string_value="géheim")
    client.secrets.put_secret("ml", "raw", bytes_value=base64.b64encode(b"\x00\xff").decode())
    assert base64.b64decode(client.secrets.get_secret("ml", "token").value) == "géheim".encode()
    assert base64.b64decode(client.secrets.get_secret("ml", "raw").value) == b"\x00\xff"
    assert [one.key for one in client.secrets.list_secrets("ml")] == ["raw", "token"]
    client.secrets.delete_secret("ml", "raw")
    with pytest.raises(NotFound, match="scope: ml and key: raw"):
        client.secrets.get_secret("ml", "raw")


def test_a_scope_goes_with_its_secrets(client: Any) -> None:
    client.secrets.create_scope("a")
    client.secrets.create_scope("ab")
    client.secrets.put_secret("a", "k", string_value="1")
    client.secrets.put_secret("ab", "k", string_value="2")
    with pytest.raises(ResourceAlreadyExists):
        client.secrets.create_scope("a")
    client.secrets.delete_scope("a")
    client.secrets.create_scope("a")
    assert list(client.secrets.list_secrets("a")) == []
    assert [one.key for one in client.secrets.list_secrets("ab")] == ["k"]


def test_a_scope_that_is_missing_is_named(client: Any) -> None:
    for ask in (
        lambda: client.secrets.get_secret("none", "k"),
        lambda: client.secrets.put_secret("none", "k", string_value="1"),
        lambda: list(client.secrets.list_secrets("none")),
        lambda: client.secrets.delete_scope("none"),
    ):
        with pytest.raises(NotFound, match="Scope none does not exist") as refused:
            ask()
        assert refused.value.error_code == "RESOURCE_DOES_NOT_EXIST"


def test_values_and_names_that_make_no_sense_are_refused(client: Any) -> None:
    client.secrets.create_scope("ml")
    with pytest.raises(InvalidParameterValue):
        client.secrets.put_secret("ml", "k")
    with pytest.raises(InvalidParameterValue):
        client.secrets.put_secret("ml", "a key", string_value="1")
    with pytest.raises(InvalidParameterValue):
        client.secrets.create_scope("a:b")


def test_a_scope_has_a_list_of_who_may_do_what(client: Any) -> None:
    me = client.current_user.me().user_name
    client.secrets.create_scope("ml")
    client.secrets.put_acl("ml", "users", AclPermission.WRITE)
    client.secrets.put_acl("ml", "users", AclPermission.READ)
    listed = {one.principal: one.permission for one in client.secrets.list_acls("ml")}
    assert listed == {me: AclPermission.MANAGE, "users": AclPermission.READ}
    assert client.secrets.get_acl("ml", "users").permission is AclPermission.READ
    client.secrets.delete_acl("ml", "users")
    with pytest.raises(NotFound, match="users has no permission"):
        client.secrets.get_acl("ml", "users")
    with pytest.raises(InvalidParameterValue, match="'nobody' does not exist"):
        client.secrets.put_acl("ml", "nobody", AclPermission.READ)
    with pytest.raises(NotFound, match="Scope none"):
        list(client.secrets.list_acls("none"))
    client.secrets.delete_scope("ml")
    client.secrets.create_scope("ml", initial_manage_principal="users")
    assert [one.principal for one in client.secrets.list_acls("ml")] == ["users"]
