"""Faults by rule, met by the SDK as it is."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from databricks.sdk.errors import AlreadyExists, BadRequest, NotFound, TemporarilyUnavailable
from databricks.sdk.errors.platform import ResourceAlreadyExists
from databricks.sdk.service.workspace import ImportFormat

from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.testing.workspace.conftest import call

ME = "/api/2.0/preview/scim/v2/Me"


@pytest.fixture
def inject(server: WorkspaceServer, token: str) -> Callable[..., None]:
    """Put a rule in force for this test's tenant, over HTTP."""

    def rule(**fault: Any) -> None:
        answer = call("POST", f"{server.url}/__testserver/fault", token=token, data=fault)
        assert answer.status == 200, answer.body

    return rule


@pytest.fixture
def asked(server: WorkspaceServer, token: str) -> Callable[[str], list[int]]:
    """The statuses of what this test's tenant asked so far."""

    def statuses(path: str) -> list[int]:
        answer = call("GET", f"{server.url}/__testserver/requests", token=token)
        return [one["status"] for one in answer.json["requests"] if one["path"] == path]

    return statuses


def test_the_sdk_waits_as_long_as_it_is_told(
    client: Any, inject: Callable[..., None], asked: Callable[[str], list[int]]
) -> None:
    inject(pattern=f"GET {ME}", status_code=429, retry_after=7, times=2)
    assert client.current_user.me().user_name
    assert asked(ME) == [429, 429, 200]
    assert [int(one) for one in client.config.clock.slept] == [7, 7]


def test_a_storm_that_does_not_end_is_an_error(client: Any, inject: Callable[..., None]) -> None:
    inject(pattern="GET *", status_code=503, retry_after=5, times=0)
    with pytest.raises(TimeoutError) as failed:
        client.current_user.me()
    assert isinstance(failed.value.__cause__, TemporarilyUnavailable)


def test_a_connection_that_is_cut_is_tried_again(
    client: Any, inject: Callable[..., None], asked: Callable[[str], list[int]]
) -> None:
    inject(pattern="POST /api/2.0/secrets/scopes/create", effect="cut")
    client.secrets.create_scope("once")
    assert asked("/api/2.0/secrets/scopes/create") == [0, 200]


def test_an_answer_that_is_lost_has_had_its_effect(
    client: Any, inject: Callable[..., None], asked: Callable[[str], list[int]]
) -> None:
    inject(pattern="POST /api/2.0/secrets/scopes/create", effect="lose_answer")
    with pytest.raises(ResourceAlreadyExists):
        client.secrets.create_scope("once")
    assert asked("/api/2.0/secrets/scopes/create") == [0, 400]
    assert [one.name for one in client.secrets.list_scopes()] == ["once"]


def test_an_error_can_hide_an_effect(client: Any, inject: Callable[..., None]) -> None:
    inject(
        pattern="POST /api/2.0/workspace/mkdirs", effect="status", status_code=400, keep=True,
        body={"error_code": "INVALID_STATE", "message": "not now"},
    )  # fmt: skip
    with pytest.raises(BadRequest, match="not now"):
        client.workspace.mkdirs("/Shared/there")
    assert client.workspace.get_status("/Shared/there").object_id


def test_a_rule_lets_the_first_matches_pass(client: Any, inject: Callable[..., None]) -> None:
    inject(pattern=f"GET {ME}", status_code=404, after=2)
    client.current_user.me()
    client.current_user.me()
    with pytest.raises(NotFound):
        client.current_user.me()
    client.current_user.me()


def test_a_rule_can_look_at_the_query(client: Any, inject: Callable[..., None]) -> None:
    client.workspace.mkdirs("/Shared/b")
    inject(pattern="GET /api/2.0/workspace/get-status?path=*a", status_code=403, times=0)
    client.workspace.get_status("/Shared/b")
    with pytest.raises(Exception, match="a fault that a test asked for"):
        client.workspace.get_status("/Shared/a")


def test_what_was_written_is_seen_only_later(client: Any, inject: Callable[..., None]) -> None:
    client.workspace.upload("/Shared/f", b"old", format=ImportFormat.AUTO)
    inject(
        pattern="POST /api/2.0/workspace/*", effect="stale", times=2, reads=2,
        seen_by="GET /api/2.0/workspace/*",
    )  # fmt: skip
    client.workspace.mkdirs("/Shared/new")
    for _ in range(2):
        with pytest.raises(NotFound):
            client.workspace.get_status("/Shared/new")
    assert client.workspace.get_status("/Shared/new").path == "/Shared/new"
    client.workspace.upload("/Shared/f", b"new", format=ImportFormat.AUTO, overwrite=True)
    seen = [client.workspace.download("/Shared/f").read() for _ in range(3)]
    assert seen == [b"old", b"old", b"new"]


def test_hooks_are_called_with_what_the_rule_says(
    server: WorkspaceServer, client: Any, token: str
) -> None:
    called: list[tuple[str, dict[str, Any]]] = []
    server.faults.register("note", lambda request, given: called.append((request.path, {**given})))
    rule = Fault(pattern=f"GET {ME}", effect=Effect.HOOK, hook="note", arguments={"node": 1})
    server.faults.add(rule, tenant=server.tenants.of_token(token).key)
    client.current_user.me()
    client.current_user.me()
    assert called == [(ME, {"node": 1})]


@pytest.mark.parametrize(
    "rule",
    [
        {"status_code": 500},
        {"pattern": "*", "effect": "explode"},
        {"pattern": "*", "colour": "red"},
        {"pattern": "*", "effect": "hook", "hook": "nobody"},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    server: WorkspaceServer, token: str, rule: dict[str, Any]
) -> None:
    answer = call("POST", f"{server.url}/__testserver/fault", token=token, data=rule)
    assert (answer.status, answer.json["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


def test_reset_takes_rules_and_records_back(
    server: WorkspaceServer, client: Any, token: str, inject: Callable[..., None],
    asked: Callable[[str], list[int]],
) -> None:  # fmt: skip
    inject(pattern="GET *", status_code=404, times=0)
    with pytest.raises(NotFound):
        client.current_user.me()
    assert call("POST", f"{server.url}/__testserver/reset", token=token).status == 200
    assert asked(ME) == []
    client.current_user.me()
    assert asked(ME) == [200]


def test_requests_are_recorded_with_what_they_brought(
    server: WorkspaceServer, client: Any, token: str
) -> None:
    client.workspace.mkdirs("/Shared/seen")
    recorded = call("GET", f"{server.url}/__testserver/requests", token=token).json["requests"]
    assert recorded[-1] | {"tenant": ""} == {
        "method": "POST", "path": "/api/2.0/workspace/mkdirs", "query": {}, "tenant": "",
        "status": 200, "size": len('{"path": "/Shared/seen"}'), "json": {"path": "/Shared/seen"},
    }  # fmt: skip


def test_an_upload_whose_answer_is_lost_is_there(client: Any, inject: Callable[..., None]) -> None:
    inject(pattern="PUT /api/2.0/fs/files/*", effect="lose_answer")
    with pytest.raises(AlreadyExists):
        client.files.upload("/Volumes/main/default/files/x", io.BytesIO(b"1"), overwrite=False)
    assert client.files.download("/Volumes/main/default/files/x").contents.read() == b"1"
