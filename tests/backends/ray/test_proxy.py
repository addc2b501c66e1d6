"""The proxy in front of a dashboard, by the variables that Ray's own client follows."""

import base64
import socket
import threading
from contextlib import closing

import pytest

from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_connection import proxy_of
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from sgpu_decl.errors import BackendError
from tests.backends.ray.answers import answering

VERSION = {"ray_version": "2.60.0"}
BASIC = "Basic " + base64.b64encode(b"me:p w").decode()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.mark.parametrize(
    ("url", "environ", "found"),
    [
        ("http://ray.example", {}, None),
        ("http://ray.example", {"HTTP_PROXY": "http://a:1"}, ("HTTP_PROXY", "a", 1)),
        ("http://ray.example", {"HTTP_PROXY": "http://a:1", "http_proxy": "b:2"},
         ("http_proxy", "b", 2)),
        ("http://ray.example", {"HTTPS_PROXY": "http://a:1"}, None),
        ("https://ray.example", {"HTTPS_PROXY": "http://a"}, ("HTTPS_PROXY", "a", 80)),
        ("https://ray.example", {"ALL_PROXY": "http://a:1"}, ("ALL_PROXY", "a", 1)),
        ("http://127.0.0.1:8265", {"HTTP_PROXY": "http://a:1"}, None),
        *(("http://ray.example:8265", {"HTTP_PROXY": "http://a:1", "NO_PROXY": text}, None)
          for text in ("*", "ray.example", "b, .example", "example", "ray.example:8265")),
        *(("http://10.1.2.3:8265", {"HTTP_PROXY": "http://a:1", "NO_PROXY": text}, None)
          for text in ("10.1.2.3", "10.0.0.0/8", "ray.example,10.1.0.0/16")),
        *(("http://[2001:db8::1]:8265", {"HTTP_PROXY": "http://a:1", "NO_PROXY": text}, None)
          for text in ("[2001:db8::1]", "2001:db8::1", "2001:db8::/32")),
        *(("http://10.1.2.3:8265", {"HTTP_PROXY": "http://a:1", "NO_PROXY": text},
           ("HTTP_PROXY", "a", 1)) for text in ("11.0.0.0/8", "ample", "10.1.2.3:1")),
    ],
)  # fmt: skip
def test_which_proxy_requests_take(
    url: str, environ: dict[str, str], found: tuple[str, str, int] | None
) -> None:
    proxy = proxy_of(DashboardAddress(url=url), environ)
    assert (None if proxy is None else (proxy.variable, proxy.host, proxy.port)) == found


@pytest.mark.parametrize("text", ["socks5://a:1", "https://a:1", "http://", "http://a:b"])
def test_a_proxy_that_cannot_be_used(text: str) -> None:
    with pytest.raises(BackendError, match="`ALL_PROXY` names no proxy") as raised:
        proxy_of(DashboardAddress(url="http://ray.example"), {"ALL_PROXY": text})
    assert raised.value.code == "bad_proxy"
    assert "`NO_PROXY`" in raised.value.hint


def test_a_plain_request_names_the_dashboard_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering({"http://ray.example:8265/prod/api/version": VERSION}) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        address = DashboardAddress(url="http://ray.example:8265/prod")
        with closing(Dashboard(address, Credentials())) as ray:
            assert [ray.get("/api/version") for _ in range(2)] == [VERSION] * 2
        assert server.connections == 1


def test_an_encrypted_request_takes_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            asked.append(connection.recv(65536).decode())
            connection.sendall(b"HTTP/1.1 407 Who are you\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=refuse, args=(server,))
        thread.start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%20w@127.0.0.1:{port}")
        with (
            closing(Dashboard(DashboardAddress(url="https://ray.example"), Credentials())) as ray,
            pytest.raises(BackendError, match="407 Who are you") as raised,
        ):
            ray.get("/api/version")
        thread.join()
    assert raised.value.code == "host_unreachable"
    assert f"(by the proxy `127.0.0.1:{port}` of `HTTPS_PROXY`)" in raised.value.message
    assert asked[0].startswith("CONNECT ray.example:443 HTTP/1.")
    assert f"Proxy-Authorization: {BASIC}\r\n" in asked[0]
