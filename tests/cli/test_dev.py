"""`sgpu dev workspace`: a process that serves until it is told to stop."""

import ast
import importlib.util
import json
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import sgpu_decl
from sgpu_decl.distribution import EXTRAS
from tests.support import PATIENCE

ME = "/api/2.0/preview/scim/v2/Me"


def ask(url: str, token: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
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
        out, err = process.communicate(timeout=PATIENCE)
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
            process.communicate(timeout=PATIENCE)
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
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("given", ["GPU_9=1", "GPU_1xA10", "GPU_1xA10=x"])
def test_gpus_are_said_by_type_and_number(sgpu: Any, given: str) -> None:
    refused = sgpu("dev", "workspace", "--gpus", given)
    assert refused.code == 64
    assert f"`{given}` is not TYPE=N with a type of GPU_1xA10" in refused.err


def test_it_follows_a_profile(sgpu: Any) -> None:
    sgpu.write("prod.yml", "accelerators: [GPU_8xB300]\nnode-python: '3.13'\n")
    with sgpu.start("dev", "workspace", "--profile", "prod.yml", "-o", "json") as process:
        data = json.loads(process.stdout.readline())["data"]
        token = data["environment"]["DATABRICKS_TOKEN"]
        offered = ask(data["url"] + "/api/2.0/ai-compute-manager/compute-options", token)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert "cannot follow what `prod.yml` says of `node-python`" in err
    assert offered == {"compute_options": [{"hardware_accelerator": "GPU_8xB300"}]}


def test_a_profile_that_is_wrong_is_refused_by_place(sgpu: Any) -> None:
    sgpu.write("prod.yml", "read-limit: many\nform-uplaod: true\npriorities: [1]\n")
    answer = sgpu.exits(1, "dev", "workspace", "--profile", "prod.yml", "-o", "json")
    told = answer.json["error"]["diagnostics"]
    assert [(item["code"], item["file"], item["line"], item["column"]) for item in told] == [
        ("wrong_type", "prod.yml", 1, 13),
        ("unknown_key", "prod.yml", 2, 1),
        ("wrong_type", "prod.yml", 3, 13),
    ]
    assert told[1]["hint"] == "did you mean `form-upload`?"
    assert told[2]["hint"] == 'such as ["BEST_EFFORT", "NORMAL"]'
    missing = sgpu.here("dev", "workspace", "--profile", "none.yml", "-o", "json")
    assert missing.json["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("read-limit: -4\n", "out_of_range", "such as 10485760"),
        ("cancel-grace-seconds: .inf\n", "out_of_range", "such as 10"),
        ("", "empty_file", "write what was found into it, such as `read-limit: 5242880`"),
    ],
)
def test_a_profile_that_nothing_could_follow_is_refused(
    sgpu: Any, text: str, code: str, hint: str
) -> None:
    sgpu.write("prod.yml", text)
    answer = sgpu.here("dev", "workspace", "--profile", "prod.yml", "-o", "json")
    (told,) = answer.json["error"]["diagnostics"]
    assert (answer.code, told["code"], told["hint"]) == (1, code, hint)


def test_generous_is_a_choice(sgpu: Any) -> None:
    assert "--generous" in sgpu("dev", "workspace", "--help").out
    with sgpu.start("dev", "workspace", "--generous", "-o", "json") as process:
        assert json.loads(process.stdout.readline())["data"]["url"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def test_what_the_emulator_needs_is_in_its_extra(
    sgpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = set()
    for file in (Path(sgpu_decl.__file__).parent / "testing" / "workspace").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    others = imported - sys.stdlib_module_names - {"sgpu_decl"}
    assert others == {"mlflow", "werkzeug"}  # which comes with MLflow's server
    assert any(line.startswith("mlflow") for line in EXTRAS["emulator"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "sgpu_decl.cli.dev", raising=False)
    refused = sgpu.here("dev", "workspace")
    assert "error[sdk_missing]" in refused.err
    assert "mlflow" in refused.err.partition("hint: install it with")[2]
