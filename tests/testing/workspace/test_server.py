"""The server itself: who may ask, what is not there, connections, bodies, restarts."""

import http.client
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import PermissionDenied, Unauthenticated

from sgpu_decl.testing.workspace import Effect, Fault, TokenState, User, WorkspaceServer
from tests.testing.workspace.conftest import Answer, call, client_of


def address(server: WorkspaceServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port)


def test_the_sdk_finds_out_who_it_is_and_where(client: Any) -> None:
    me = client.current_user.me()
    assert me.user_name.endswith("@example.com")
    assert client.config.workspace_id == WorkspaceServer.org_id
    assert client.get_workspace_id() == int(WorkspaceServer.org_id)


def test_a_service_principal_gets_a_token_and_stays_one_tenant(server: WorkspaceServer) -> None:
    names = set()
    for _ in range(2):
        client = WorkspaceClient(host=server.url, client_id="robot", client_secret="x")
        names.add(client.current_user.me().user_name)
    assert len(names) == 1


def test_no_token_is_401_and_a_wrong_one_403(server: WorkspaceServer) -> None:
    me = f"{server.url}/api/2.0/preview/scim/v2/Me"
    assert call("GET", me).status == 401
    answer = call("GET", me, token="hello")
    assert (answer.status, answer.json["message"]) == (403, "Invalid access token.")
    with pytest.raises(PermissionDenied):
        client_of(server.url, "hello").current_user.me()


def test_known_tokens_are_what_the_server_was_told(tmp_path: Path) -> None:
    users = {
        "dapi-ada": User(name="ada@example.org"),
        "dapi-old": User(name="old@example.org", state=TokenState.EXPIRED),
        "dapi-out": User(name="out@example.org", state=TokenState.FORBIDDEN),
    }
    with WorkspaceServer(tmp_path, users=users) as server:
        assert client_of(server.url, "dapi-ada").current_user.me().user_name == "ada@example.org"
        with pytest.raises(PermissionDenied, match="expired"):
            client_of(server.url, "dapi-old").current_user.me()
        with pytest.raises(PermissionDenied, match=r"out@example\.org"):
            client_of(server.url, "dapi-out").current_user.me()


def test_what_is_not_there_is_named(api: Callable[..., Answer]) -> None:
    answer = api("POST", "/api/2.0/clusters/create", {})
    assert answer.status == 501
    assert "`POST /api/2.0/clusters/create`" in answer.json["message"]


def test_a_body_that_is_no_json_is_the_callers_fault(api: Callable[..., Answer]) -> None:
    answer = api("POST", "/api/2.0/workspace/mkdirs", b"{", Content_Type="application/json")
    assert (answer.status, answer.json["error_code"]) == (400, "MALFORMED_REQUEST")


def test_one_connection_serves_many_requests(server: WorkspaceServer, token: str) -> None:
    connection = http.client.HTTPConnection(*address(server), timeout=30)
    connection.connect()
    first = connection.sock
    for _ in range(5):
        connection.request(
            "GET", "/api/2.0/preview/scim/v2/Me", headers={"Authorization": f"Bearer {token}"}
        )
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["X-Databricks-Org-Id"] == WorkspaceServer.org_id
        response.read()
        assert connection.sock is first
    connection.close()


def test_chunked_bodies_are_read(server: WorkspaceServer, client: Any, token: str) -> None:
    blocks = [b"a" * 70_000, b"b", b"c" * 1_500_000]
    connection = http.client.HTTPConnection(*address(server), timeout=30)
    connection.request(
        "PUT", "/api/2.0/fs/files/Volumes/main/default/files/chunks.bin", body=iter(blocks),
        headers={"Authorization": f"Bearer {token}"}, encode_chunked=True,
    )  # fmt: skip
    assert connection.getresponse().status == 204
    connection.close()
    got = client.files.download("/Volumes/main/default/files/chunks.bin").contents.read()
    assert got == b"".join(blocks)


def test_a_body_that_breaks_off_leaves_nothing(
    server: WorkspaceServer, token: str, api: Callable[..., Answer]
) -> None:
    path = "/api/2.0/fs/files/Volumes/main/default/files/half.bin"
    with socket.create_connection(address(server), timeout=30) as raw:
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        raw.sendall(f"{head}Content-Length: 4000000\r\n\r\n".encode() + b"x" * 3_000_000)
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    assert api("GET", path).status == 404
    assert not list(server.incoming.iterdir())


def test_tokens_do_not_see_each_other(server: WorkspaceServer) -> None:
    first, second = (client_of(server.url, f"dapi-isolated-{name}") for name in "ab")
    first.secrets.create_scope("mine")
    first.workspace.mkdirs("/Shared/mine")
    assert [one.name for one in first.secrets.list_scopes()] == ["mine"]
    assert list(second.secrets.list_scopes()) == []
    assert list(second.workspace.list("/Shared")) == []


def test_a_server_that_starts_again_has_what_it_had(tmp_path: Path, token: str) -> None:
    with WorkspaceServer(tmp_path) as server:
        client = client_of(server.url, token)
        home = f"/Users/{client.current_user.me().user_name}"
        client.workspace.mkdirs(f"{home}/kept")
        client.secrets.create_scope("scope")
        client.secrets.put_secret("scope", "key", string_value="value")
        client.dbfs.put("/kept.txt", contents="aGVsbG8=")
        before = client.workspace.get_status(f"{home}/kept")
    with WorkspaceServer(tmp_path) as server:
        client = client_of(server.url, token)
        assert client.workspace.get_status(f"{home}/kept") == before
        assert client.secrets.get_secret("scope", "key").value == "dmFsdWU="
        assert client.dbfs.get_status("/kept.txt").file_size == 5
        client.workspace.mkdirs(f"{home}/later")
        later = client.workspace.get_status(f"{home}/later")
        assert later.object_id > before.object_id


def test_closing_ends_connections_and_requests_that_wait(tmp_path: Path, token: str) -> None:
    server = WorkspaceServer(tmp_path).start()
    arrived = threading.Event()
    server.faults.register("arrive", lambda *_: arrived.set())
    server.faults.add(Fault(pattern="GET *", effect=Effect.HOOK, hook="arrive"))
    server.faults.add(Fault(pattern="GET *", effect=Effect.DELAY, seconds=3600))
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(call("GET", f"{server.url}/api/2.0/workspace/list?path=/", token=token))
        except OSError as error:
            outcome.append(error)

    waiting = threading.Thread(target=ask)
    with socket.create_connection(address(server), timeout=30) as idle:
        waiting.start()
        assert arrived.wait(30)
        server.close()
        waiting.join(30)
        assert idle.recv(1) == b""
    assert isinstance(outcome[0], OSError)


def test_unauthenticated_is_an_error_of_its_own_for_the_sdk(server: WorkspaceServer) -> None:
    client = client_of(server.url, "dapi-anything")
    client.api_client._cfg._header_factory = lambda: {"Authorization": ""}
    with pytest.raises(Unauthenticated):
        client.current_user.me()
