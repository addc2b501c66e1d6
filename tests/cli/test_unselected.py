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


FOUND = {
    "no_gpu": "{gpus: 1, type: H100, command: 'true'}",
    "entrypoint_missing": "{gpus: 1, type: CPU, entrypoint: 'nowhere.py:main'}",
    "file_left_out": "{gpus: 1, type: CPU, entrypoint: train.py}",
    "program_missing": "{gpus: 1, type: CPU, command: [nosuchprog]}",
    "code_root_missing": "{gpus: 1, type: CPU, command: 'true', code: {root: nowhere}}",
    "include_unused": "{gpus: 1, type: CPU, command: 'true', code: {include: [none.bin]}}",
}


@pytest.mark.parametrize("code", FOUND)
def test_what_is_found_about_a_run_names_it(sgpu: Shell, code: str) -> None:
    sgpu.write(".gitignore", "*.bin\n")
    sgpu.write("w.bin", "")
    sgpu.write("train.py", "open('w.bin')\n")
    run = FOUND[code].replace("{", "{mlflow: {enabled: false}, ", 1)
    other = "{mlflow: {enabled: false}, gpus: 1, type: CPU, command: 'true'}"
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nruns:\n  a: {other}\n  b: {run}\n  c: {run}\n")
    for names, also in ((["b"], ""), (["b", "c"], "(also `run.c`)")):
        checks = sgpu.here("plan", *names, "-o", "json").json["data"]["checks"]
        found = [one for one in checks if one["id"] == code]
        assert {one["address"] for one in found} <= {"run.b", "run.c"}, checks
        assert found[0]["address"] == "run.b"
        if len(found) < len(names):
            assert found[0]["summary"].endswith(also)
