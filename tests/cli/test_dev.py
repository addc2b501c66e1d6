"""`sgpu dev workspace`: a process that serves until it is told to stop."""

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ME = "/api/2.0/preview/scim/v2/Me"


def ask(url: str, token: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def user_of(url: str, token: str) -> str:
    return str(ask(url + ME, token)["userName"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_to_export_and_stops_when_told(sgpu: Any, number: int) -> None:
    with sgpu.start("dev", "workspace") as process:
        lines = [process.stdout.readline().removeprefix("export ").strip() for _ in range(2)]
        exported = dict(line.split("=", 1) for line in lines)
        assert list(exported) == ["DATABRICKS_HOST", "DATABRICKS_TOKEN"]
        assert user_of(*exported.values()).endswith("@example.com")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    root = Path(err.split("`")[1])
    assert exported["DATABRICKS_HOST"] in err
    assert not root.exists()


def test_a_root_is_kept_and_is_for_one_server_at_a_time(sgpu: Any) -> None:
    users = set()
    for _ in range(2):
        with sgpu.start("dev", "workspace", "--root", "ws", "-o", "json") as process:
            data = json.loads(process.stdout.readline())["data"]
            users.add(user_of(data["url"], data["environment"]["DATABRICKS_TOKEN"]))
            second = sgpu("dev", "workspace", "--root", "ws", "-o", "json")
            assert (second.code, second.json["error"]["code"]) == (3, "state_locked")
            port = data["url"].rpartition(":")[2]
            third = sgpu("dev", "workspace", "--port", port, "-o", "json")
            assert (third.code, third.json["error"]["code"]) == (1, "port_taken")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert data["root"] == str(sgpu.folder / "ws")
    assert len(users) == 1


def test_what_was_written_outlives_a_server_that_is_killed(sgpu: Any) -> None:
    kept = "/api/2.0/secrets/scopes/list"
    for number in range(2):
        with sgpu.start("dev", "workspace", "--root", "ws", "-o", "json") as process:
            environment = json.loads(process.stdout.readline())["data"]["environment"]
            url, token = environment["DATABRICKS_HOST"], environment["DATABRICKS_TOKEN"]
            assert ("scopes" in ask(url + kept, token)) == (number == 1)
            if number == 0:
                ask(f"{url}/api/2.0/secrets/scopes/create", token, {"scope": "kept"})
            process.kill()
            process.communicate(timeout=60)


@pytest.mark.parametrize("given", ["GPU_9=1", "GPU_1xA10", "GPU_1xA10=x"])
def test_gpus_are_said_by_type_and_number(sgpu: Any, given: str) -> None:
    refused = sgpu("dev", "workspace", "--gpus", given)
    assert refused.code == 64
    assert f"`{given}` is not TYPE=N with a type of GPU_1xA10" in refused.err
