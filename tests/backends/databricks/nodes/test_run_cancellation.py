"""Which credentials node 0 takes to end a run whose code has failed: real nodes, and a host that
notes what it is asked."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.http_servers import QuietServer

TOKEN = "dapi-hush"
CONFIG = {"gpus": 1, "retry": {"max": 1, "on": ["infra"]}}


class Host:
    """An address, and what was asked of it: paths, tokens and bodies."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append((self.path, self.headers["Authorization"], body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    thread = threading.Thread(target=host.server.serve_forever)
    thread.start()
    yield host
    host.server.shutdown()
    thread.join()
    host.server.server_close()


@pytest.fixture
def failing(make_hosted: Any) -> Any:
    hosted = make_hosted("def main(): raise ValueError('a mistake')", config=CONFIG)
    (hosted.launch / "submitted.json").write_text('{"run_id": 7}')
    return hosted


PROFILE = "[DEFAULT]\nhost = {url}\ntoken = dapi-hush\n"


@pytest.mark.parametrize(
    ("file", "variables"),
    [
        (PROFILE, {}),
        (PROFILE.replace("DEFAULT", "team"), {"DATABRICKS_CONFIG_PROFILE": "team"}),
        ("[DEFAULT]\nhost = https://a.example\ntoken = other\n",
         {"DATABRICKS_HOST": "{url}/", "DATABRICKS_TOKEN": TOKEN}),
    ],
    ids=["profile", "named", "variables"],
)  # fmt: skip
def test_the_run_is_ended_with_what_the_sdk_would_take(
    failing: Any, host: Host, tmp_path: Path, file: str, variables: dict[str, str]
) -> None:
    (tmp_path / "profiles").write_text(file.format(url=host.url))
    named = {name: value.format(url=host.url) for name, value in variables.items()}

    codes = failing.run(DATABRICKS_CONFIG_FILE=str(tmp_path / "profiles"), **named)

    assert codes == [1]
    assert host.asked == [("/api/2.2/jobs/runs/cancel", f"Bearer {TOKEN}", {"run_id": 7})]
    assert "no further attempt is made" in failing.log()


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("file", "variables"),
    [
        ("", {}),
        ("token = dapi-hush\n", {}),
        ("[DEFAULT]\nhost = {url}\ntoken = a\n dapi-hush\n", {}),
        ("", {"DATABRICKS_HOST": "{url}", "DATABRICKS_TOKEN": "a\ndapi-hush"}),
        ("", {"DATABRICKS_HOST": "{url}/a b", "DATABRICKS_TOKEN": TOKEN}),
        ("[DEFAULT]\ntoken = dapi-hush\n[team]\nhost = {url}\n",
         {"DATABRICKS_CONFIG_PROFILE": "team"}),
        (PROFILE, {"DATABRICKS_HOST": "https://a.example"}),
        (PROFILE, {"DATABRICKS_TOKEN": "other"}),
        (PROFILE, {"DATABRICKS_CONFIG_PROFILE": "team"}),
    ],
    ids=["none", "no-profiles", "token-of-a-profile", "token", "host", "half", "host-alone",
         "token-alone", "no-profile"],
)  # fmt: skip
def test_credentials_that_are_none_end_nothing_and_are_not_shown(
    failing: Any, host: Host, tmp_path: Path, file: str, variables: dict[str, str]
) -> None:
    (tmp_path / "profiles").write_text(file.format(url=host.url))
    named = {name: value.format(url=host.url) for name, value in variables.items()}

    codes = failing.run(DATABRICKS_CONFIG_FILE=str(tmp_path / "profiles"), **named)

    assert codes == [1]
    assert host.asked == []
    assert failing.outcome()["first_cause"]["class"] == "exception"
    assert TOKEN not in failing.log()
    assert failing.log().count("Traceback") == 1
