"""The server itself: who may ask, what is not there, connections, bodies, restarts."""

import http.client
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import PermissionDenied, Unauthenticated

from sgpu_decl.testing.workspace import Effect, Fault, TokenState, User, WorkspaceServer
from sgpu_decl.testing.workspace.server import ORG_ID
from tests.support import PATIENCE
from tests.testing.workspace.conftest import Answer, call, client_of


def address(server: WorkspaceServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port)


def test_the_sdk_finds_out_who_it_is_and_where(client: Any) -> None:
    me = client.current_user.me()
    assert me.user_name.endswith("@example.com")
    assert client.config.workspace_id == ORG_ID
    assert client.get_workspace_id() == int(ORG_ID)


def test_a_service_principal_gets_a_token_and_stays_one_tenant(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with WorkspaceServer(tmp_path, clients={"robot": "x"}) as server:
            client = WorkspaceClient(host=server.url, client_id="robot", client_secret="x")
            names.add(client.current_user.me().user_name)
            for wrong in ({"client_id": "robot"}, {"client_id": "stranger", "client_secret": "x"}):
                form = urlencode({"grant_type": "client_credentials", **wrong}).encode()
                answer = call("POST", f"{server.url}/oidc/v1/token", data=form)
                assert (answer.status, answer.json["error"]) == (401, "invalid_client")
    assert len(names) == 1


@pytest.mark.parametrize("stranger", ["dapi" + "0" * 32, "eyJ" + "0" * 64, "dapi-\xe9", "hello"])
def test_a_token_that_nobody_gave_out_runs_nothing(server: WorkspaceServer, stranger: str) -> None:
    """Whoever shares the machine could make one up, and run code as the server's owner."""
    for method, path in (
        ("POST", "/api/2.2/jobs/runs/submit"),
        ("POST", "/api/2.0/workspace/import"),
        ("POST", "/__testserver/fault"),
        ("GET", "/__testserver/requests"),
    ):
        assert call(method, f"{server.url}{path}", token=stranger).status == 403
        assert call(method, f"{server.url}{path}").status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("127.0.0.1:1", 200), ("LOCALHOST:80", 200), ("[::1]:80", 200),
        ("evil.example", 421), ("evil.example:80", 421), ("localhost.evil.example", 421), ("", 421),
    ],
)  # fmt: skip
def test_a_request_for_another_host_is_refused(
    server: WorkspaceServer, token: str, host: str, status: int
) -> None:
    """A page in a browser can be led here by a name that its owner lets point to this machine."""
    connection = http.client.HTTPConnection(*address(server), timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {token}", "Host": host}
    connection.request("GET", "/api/2.0/preview/scim/v2/Me", headers=headers)
    assert connection.getresponse().status == status
    connection.close()


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
    assert (answer.status, answer.json["error_code"]) == (404, "ENDPOINT_NOT_FOUND")
    assert "'POST /api/2.0/clusters/create'" in answer.json["message"]


def test_a_body_that_is_no_json_is_the_callers_fault(api: Callable[..., Answer]) -> None:
    answer = api("POST", "/api/2.0/workspace/mkdirs", b"{", Content_Type="application/json")
    assert (answer.status, answer.json["error_code"]) == (400, "MALFORMED_REQUEST")


def test_one_connection_serves_many_requests(server: WorkspaceServer, token: str) -> None:
    connection = http.client.HTTPConnection(*address(server), timeout=PATIENCE)
    connection.connect()
    first = connection.sock
    for _ in range(5):
        connection.request(
            "GET", "/api/2.0/preview/scim/v2/Me", headers={"Authorization": f"Bearer {token}"}
        )
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["X-Databricks-Org-Id"] == ORG_ID
        response.read()
        assert connection.sock is first
    connection.close()


def test_chunked_bodies_are_read(server: WorkspaceServer, client: Any, token: str) -> None:
    blocks = [b"a" * 70_000, b"b", b"c" * 1_500_000]
    connection = http.client.HTTPConnection(*address(server), timeout=PATIENCE)
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
    with socket.create_connection(address(server), timeout=PATIENCE) as raw:
        head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        raw.sendall(f"{head}Content-Length: 4000000\r\n\r\n".encode() + b"x" * 3_000_000)
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    assert api("GET", path).status == 404
    assert not list(server.incoming.iterdir())


def test_tokens_do_not_see_each_other(server: WorkspaceServer) -> None:
    first, second = (client_of(server.url, server.new_token()) for _ in "ab")
    first.secrets.create_scope("mine")
    first.workspace.mkdirs("/Shared/mine")
    assert [one.name for one in first.secrets.list_scopes()] == ["mine"]
    assert list(second.secrets.list_scopes()) == []
    assert list(second.workspace.list("/Shared")) == []


def test_a_server_that_starts_again_has_what_it_had(tmp_path: Path, token: str) -> None:
    with WorkspaceServer(tmp_path) as server:
        client = client_of(server.url, server.admit(token))
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
    server.admit(token)
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
    with socket.create_connection(address(server), timeout=PATIENCE) as idle:
        waiting.start()
        assert arrived.wait(PATIENCE)
        server.close()
        waiting.join(PATIENCE)
        assert idle.recv(1) == b""
    assert isinstance(outcome[0], OSError)


def test_unauthenticated_is_an_error_of_its_own_for_the_sdk(client: Any) -> None:
    client.api_client._cfg._header_factory = lambda: {"Authorization": ""}
    with pytest.raises(Unauthenticated):
        client.current_user.me()
