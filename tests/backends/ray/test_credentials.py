"""Where the address and the credentials of a cluster come from."""

from pathlib import Path

import pytest

from sgpu_decl.backends.ray.api.dashboard_address import address_of, refuse_address
from sgpu_decl.backends.ray.api.dashboard_credentials import credentials_of
from sgpu_decl.errors import BackendError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def token_in(file: Path, text: str = "t-1\n", mode: int = 0o600) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_the_token_is_found_where_ray_finds_it(home: Path) -> None:
    assert credentials_of({}).token is None
    default = token_in(home / ".ray" / "auth_token", "t-3")
    assert (credentials_of({}).token, credentials_of({}).source) == ("t-3", f"`{default}`")
    named = {"RAY_AUTH_TOKEN_PATH": str(token_in(home / "token", "t-2\n"))}
    assert credentials_of(named).token == "t-2"
    assert credentials_of({**named, "RAY_AUTH_TOKEN": " t-1\n"}).token == "t-1"


def test_a_token_is_in_no_text_of_its_object(home: Path) -> None:
    assert "t-1" not in repr(credentials_of({"RAY_AUTH_TOKEN": "t-1"}))


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604])
def test_a_token_that_others_can_read_is_known(home: Path, mode: int) -> None:
    file = token_in(home / "token", mode=mode)
    exposed = credentials_of({"RAY_AUTH_TOKEN_PATH": str(file)}).exposed
    assert exposed == (None if mode == 0o600 else file)


def test_headers_go_beside_the_token_and_are_not_replaced() -> None:
    environ = {"RAY_AUTH_TOKEN": "t-1", "RAY_JOB_HEADERS": '{"X-Team": "a"}'}
    credentials = credentials_of(environ)
    assert credentials.headers == {"X-Team": "a"}
    assert credentials.authorization == {"Authorization": "Bearer t-1"}
    own = {**environ, "RAY_JOB_HEADERS": '{"authorization": "Basic x"}'}
    assert credentials_of(own).authorization == {"X-Ray-Authorization": "Bearer t-1"}


@pytest.mark.parametrize(
    ("environ", "code", "message"),
    [
        ({"RAY_AUTH_TOKEN": "a\nb"}, "bad_ray_token", "has line breaks"),
        ({"RAY_AUTH_TOKEN_PATH": "/nowhere/token"}, "bad_ray_token", "/nowhere/token"),
        ({"RAY_JOB_HEADERS": "X-Team: a"}, "bad_ray_headers", "not a JSON object"),
        ({"RAY_JOB_HEADERS": '{"X": 1}'}, "bad_ray_headers", "not a JSON object"),
        ({"RAY_JOB_HEADERS": '{"X": "a\\nb"}'}, "bad_ray_headers", "not a JSON object"),
    ],
)
def test_credentials_that_cannot_be_used(environ: dict[str, str], code: str, message: str) -> None:
    with pytest.raises(BackendError, match=message) as raised:
        credentials_of(environ)
    assert raised.value.code == code
    assert raised.value.hint
    assert "a\nb" not in str(raised.value)


def test_an_empty_token_file_is_none_unless_it_is_named(home: Path) -> None:
    file = token_in(home / ".ray" / "auth_token", "\n")
    assert credentials_of({}).token is None
    with pytest.raises(BackendError, match="is empty"):
        credentials_of({"RAY_AUTH_TOKEN_PATH": str(file)})


@pytest.mark.parametrize(
    ("written", "environ", "url", "source"),
    [
        (None, {}, "http://127.0.0.1:8265", None),
        ("http://a", {"RAY_ADDRESS": "http://b"}, "http://a", "backend.address"),
        (None, {"RAY_ADDRESS": "http://b/x/"}, "http://b/x", "RAY_ADDRESS"),
        (None, {"RAY_ADDRESS": "b:6379"}, "http://127.0.0.1:8265", None),
        (None, {"RAY_ADDRESS": "http://b", "RAY_API_SERVER_ADDRESS": "https://C.example"},
         "https://c.example", "RAY_API_SERVER_ADDRESS"),
    ],
)  # fmt: skip
def test_the_address_is_found_where_ray_finds_it(
    written: str | None, environ: dict[str, str], url: str, source: str | None
) -> None:
    address = address_of(written, environ)
    assert (address.url, address.source) == (url, source)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("ray://[::1]:10001", "http://[::1]:8265"), ("[::1]:6379", "http://[::1]:8265"),
        ("ftp://me@head/x", "http://head:8265"), ("head:8266", "http://head:8266"),
        ("tcp://[::1]:8080/x", "http://[::1]:8080"), ("head:port", "http://head:8265"),
    ],
)  # fmt: skip
def test_the_url_to_write_has_the_host_that_was_meant(text: str, url: str) -> None:
    refused = refuse_address(text)
    assert refused is not None
    assert refused[1] == f"write `{url}`"


@pytest.mark.parametrize(("port", "written"), [(6379, 8265), (8266, 8266), (30080, 30080)])
def test_a_variable_that_names_no_dashboard_is_an_error_whose_hint_keeps_the_port(
    port: int, written: int
) -> None:
    with pytest.raises(BackendError, match="`RAY_API_SERVER_ADDRESS` must be the URL") as raised:
        address_of(None, {"RAY_API_SERVER_ADDRESS": f"head:{port}"})
    assert raised.value.hint == f"write `http://head:{written}`"


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8265", True), ("http://localhost", True), ("http://[::1]:1", True),
        ("http://127.1.2.3", True), ("http://10.0.0.1", False),
        ("https://localhost.example", False),
    ],
)  # fmt: skip
def test_what_stays_on_this_machine(url: str, loopback: bool) -> None:
    assert address_of(url, {}).is_loopback is loopback
