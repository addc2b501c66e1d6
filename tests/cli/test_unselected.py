"""What this machine or a platform says of a run that is not selected refuses nothing, and each
finding about a run names it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sgpu_decl
from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.diagnostics.codes import CodeEntry, registry
from tests.cli.conftest import Shell
from tests.sampling import sampled

A = "{gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}}"

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
        checks = sgpu.done("plan", *words, "-o", "json").json["data"]["checks"]
        assert [one for one in checks if one["severity"] != "info"] == []
    for named in ((), ("b",)):
        assert any(one["severity"] != "info" for one in sgpu.data("plan", *named)["checks"])


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
        checks = sgpu.data("plan", *names)["checks"]
        found = [one for one in checks if one["id"] == code]
        assert {one["address"] for one in found} <= {"run.b", "run.c"}, checks
        assert found[0]["address"] == "run.b"
        if len(found) < len(names):
            assert found[0]["summary"].endswith(also)


PLATFORM = """
from sgpu_decl.backends.base import Survey
from sgpu_decl.model.backend_kinds import BackendKind, Capabilities
from sgpu_decl.diagnostics.codes import registry
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity

CODES = [entry.id for entry in registry().values() if entry.severities]


def options():
    from sgpu_decl.config.backend import BackendOptions

    return BackendOptions


class Refusing(Survey):
    def found(self, where):
        return [
            Diagnostic(code=code, summary=f"{where} says {code}", severity=Severity.ERROR)
            for code in CODES
        ]

    def placement(self, config):
        return None, self.found("placement")

    def check(self, config, places, folder, *, called):
        return self.found("check")

    def check_code(self, config, places, executed):
        return self.found("check_code")


KIND = BackendKind(
    name="refusing",
    options=options,
    capabilities=Capabilities(remote=True),
    survey=lambda context: Refusing(),
)
"""
QUESTIONS = ("placement", "check", "check_code")


@pytest.fixture
def refusing(sgpu: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A project of two runs; the platform of the second one has every finding that there is."""
    information = tmp_path / "site" / "refusing-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Name: refusing\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[sgpu.backends]\nrefusing = refusing_backend:KIND\n"
    )
    (tmp_path / "site" / "refusing_backend.py").write_text(PLATFORM)
    monkeypatch.syspath_prepend(tmp_path / "site")
    b = A.replace("{gpus", "{backend: refusing, gpus")
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nruns:\n  a: {A}\n  b: {b}\n")
    return sgpu


def test_every_finding_of_a_platform_names_its_run(refusing: Shell) -> None:
    checks = refusing.data("plan", "b")["checks"]
    for question in QUESTIONS:
        said = f"{question} says "
        found = {one["id"]: one for one in checks if one["summary"].startswith(said)}
        assert found.keys() == {entry.id for entry in registry().values() if entry.severities}
        assert {one["address"] for one in found.values()} == {"run.b"}


def test_no_finding_about_another_run_refuses_anything(refusing: Shell) -> None:
    refusing.done("validate")  # it asks no machine and no platform
    refusing.exits(1, "plan")
    refusing.done("plan", "a", "--strict")
    with Session.open(Location(project=refusing.folder)) as session:
        prepared = session.plan(PlanOptions(select=("a",)), for_apply=True)
        assert prepared.plan.applyable
        assert {one.address for one in prepared.plan.checks if one.address} <= {
            str(change.address) for change in prepared.plan.changes
        }
        session.apply(prepared)
    refusing.done("wait", "a")
    refusing.done("apply", "-y", "a")


OF_ONE_RUN = [entry for entry in registry().values() if entry.yaml and "jobs:" not in entry.yaml]


def of_a_project(example: str) -> str:
    """The example of a code as a run `b` beside another one."""
    head = f"project: {{name: demo}}\nruns:\n  a: {A}\n"
    if re.search(r"^(runs|environments):", example, re.MULTILINE):
        text = re.sub(r"^runs:\n", f"runs:\n  a: {A}\n", example, flags=re.MULTILINE)
        return "project: {name: demo}\n" + text
    keys = set(re.findall(r"^(\w+):", example, re.MULTILINE)) - {"name"}
    if "entrypoint" in keys:
        keys.add("command")
    needed = {"gpus": "1", "type": "CPU", "command": "[python, train.py]"}
    lines = [f"{key}: {value}" for key, value in needed.items() if key not in keys]
    lines += [line for line in example.splitlines() if not line.startswith("name:")]
    return head + "  b:\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("code", sampled(OF_ONE_RUN), ids=lambda entry: entry.id)
def test_what_the_file_of_a_run_shows_names_it_or_makes_the_file_invalid(
    sgpu: Shell, code: CodeEntry
) -> None:
    assert code.yaml is not None
    sgpu.write("sgpu.yml", of_a_project(code.yaml))
    sgpu.write("train.py", "def main(epochs=1, lr=0.1):\n    pass\n")
    planned = sgpu.here("plan", "-o", "json")
    if planned.json.get("data") is None:
        assert planned.json["error"]["diagnostics"]  # no run of such a file is planned
        return
    found = [one for one in planned.json["data"]["checks"] if one["id"] == code.id]
    assert all(one["address"] for one in found), found
    alone = sgpu.here("plan", "a", "-o", "json")
    assert code.id not in {one["id"] for one in alone.json["data"]["checks"]}


OF_SEVERAL = {
    "planning/preparation.py": 1,  # the files at another commit are not valid
    "planner/left_out.py": 1,  # what the target leaves out, once for all
    "planner/launch_checks.py": 1,  # runs that share a pool
    "planner/environment_changes.py": 1,  # the Python of all ranks on this machine
    "planner/plan_checks.py": 5,  # what is about the whole file; others get their run there
    "planner/plan_json.py": 1,  # a saved plan that cannot be read
    "planner/attempt_checks.py": 1,  # one place does not answer about several runs: all are named
}


def without_address(tree: ast.AST) -> Iterator[ast.Call]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        given = [one.value for one in call.keywords if one.arg == "address"]
        if call.func.id == "check_of":
            given = call.args[1:]
        if call.func.id in ("Diagnostic", "check_of") and (
            not given
            or any(
                isinstance(node, ast.Constant) and node.value is None
                for value in given
                for node in ast.walk(value)
            )
        ):
            yield call


def test_every_check_of_a_plan_is_made_with_its_address() -> None:
    package = Path(sgpu_decl.__file__).parent
    found: dict[str, int] = {}
    for file in (package / "planning/preparation.py", *package.glob("planner/**/*.py")):
        if number := len(list(without_address(ast.parse(file.read_text())))):
            found[file.relative_to(package).as_posix()] = number
    assert found == OF_SEVERAL
