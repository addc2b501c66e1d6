"""What this machine or a platform says of a run that is not selected refuses nothing."""

import pytest

from tests.cli.conftest import Shell

OTHERS = {
    "no GPU": "{gpus: 64, type: H100, command: 'true'}",
    "no file": "{gpus: 1, type: CPU, entrypoint: 'nowhere.py:main'}",
    "no interpreter": "{gpus: 1, type: CPU, command: 'true', env: {python: ./none/python}}",
    "no lock": "{gpus: 1, type: CPU, command: 'true', env: {lock: nowhere.lock}}",
    "no code": "{gpus: 1, type: CPU, command: 'true', code: {root: nowhere}}",
    "no cluster": "{gpus: 1, type: CPU, command: 'true', backend: {kind: ray, "
    "address: 'http://127.0.0.1:9'}}",
    "no login": "{gpus: 1, type: A10, command: 'true', backend: databricks}",
}


@pytest.mark.parametrize("rest", OTHERS.values(), ids=OTHERS)
def test_another_run_of_the_file_refuses_nothing(sgpu: Shell, rest: str) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nruns:\n  a: {gpus: 1, type: CPU, command: 'true', "
        "mlflow: {enabled: false}}\n  b: " + rest.replace("{", "{mlflow: {enabled: false}, ", 1),
    )
    for words in (("a",), ("--exclude", "run.b"), ("--select", "run.a*")):
        planned = sgpu.here("plan", *words, "-o", "json")
        assert planned.code == 0, planned.out
        checks = planned.json["data"]["checks"]
        assert [one for one in checks if one["severity"] != "info"] == []
    for named in ((), ("b",)):
        data = sgpu.here("plan", *named, "-o", "json").json["data"]
        assert any(one["severity"] != "info" for one in data["checks"])
