"""What a plan says of runs that the platform or the workspace would refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.model.plan import Check
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer

BASE = "name: hello\ngpus: 2\ntype: A10\nentrypoint: train.py:main\nargs: {n: 3}\n"


def checks(session: Callable[[], Session], project: Path, more: str) -> dict[str, Check]:
    (project / "run.yaml").write_text(f"{BASE}backend: databricks\n{more}")
    return {it.id: it for it in session().plan().checks}


@pytest.mark.parametrize(
    ("more", "code", "severity", "line", "hint"),
    [
        ("type: CPU\n", "no_such_machines", "error", 3, "A10"),
        ("timeout: 8d\n", "timeout_too_long", "error", 7, "checkpoint"),
        ("max_parallel: 2\n", "unsupported_field", "error", 7, "max_parallel: null"),
        ("priority: high\npool: p\n", "unknown_priority", "error", 7, "BEST_EFFORT"),
        ("priority: normal\n", "priority_without_pool", "error", 7, "pool"),
        ("env:\n  base: gpu-6\n  secrets: {HF: env:HF}\n", "secret_not_remote", "error", 9,
         "databricks secrets put-secret"),
        ("env: {variables: {DATA: /dbfs/mnt/x}}\n", "dbfs_path", "error", 7, "/Volumes"),
        ("image: a.b.c:1\nenv: {base: gpu-6}\n", "image_and_environment", "error", 7, "keep one"),
        ("mlflow: {tracking_uri: 'http://x'}\n", "unsupported_field", "error", 7, "tracking_uri"),
        ("code: {link: [data]}\n", "unsupported_field", "error", 7, "volume"),
        ("env: {base: gpu-4, python: '3.9'}\n", "base_python", "error", 7, "another base"),
        ("grace: 1s\n", "default_base", "info", 6, "env.base"),
        ("budget: teem\n", "unknown_policy", "error", 7, "one of its policies"),
        ("env:\n  base: gpu-6\n  secrets: {HF: 'databricks:ml/hf'}\n", "secret_missing", "error", 9,
         "create-scope ml`, then `databricks secrets put-secret ml hf`"),
    ],
)  # fmt: skip
def test_a_config_that_does_not_go_with_the_platform(
    session: Callable[[], Session],
    project: Path,
    more: str,
    code: str,
    severity: str,
    line: int,
    hint: str,
) -> None:
    if more.startswith("type"):
        more = ""
        (project / "run.yaml").write_text(BASE.replace("A10", "CPU") + "backend: databricks\n")
        found = {it.id: it for it in session().plan().checks}
    else:
        found = checks(session, project, more)

    check = found[code]
    assert (str(check.severity), check.place and check.place.line) == (severity, line)
    assert hint in str(check.hint)


@pytest.mark.parametrize(
    ("source", "code", "severity"),
    [
        ("from ray import serve\n", "ray_serve", "error"),
        ("import pyspark\ndef f(s):\n    return s.sparkContext\n", "spark_rdd", "error"),
        ("PATH = '/dbfs/mnt/data'\n", "dbfs_path", "warning"),
        ("def f():\n    for i in range(3):\n        open(f'/Volumes/a/b/c/{i}')\n",
         "volume_in_a_loop", "info"),
    ],
)  # fmt: skip
def test_code_that_does_not_work_there(
    session: Callable[[], Session], project: Path, source: str, code: str, severity: str
) -> None:
    (project / "train.py").write_text(f"{source}def main(n):\n    pass\n")

    check = checks(session, project, "env: {base: gpu-6}\n")[code]

    assert str(check.severity) == severity
    assert check.place is not None
    assert check.place.file.endswith("train.py")


def test_machines_that_the_workspace_does_not_offer(
    session: Callable[[], Session], project: Path
) -> None:
    (project / "run.yaml").write_text(
        BASE.replace("gpus: 2", "gpus: 8").replace("A10", "B300") + "backend: databricks\n"
    )

    check = {it.id: it for it in session().plan().checks}["accelerator_not_offered"]

    assert "GPU_8xB300" in check.summary
    assert check.place is not None
    assert check.place.line == 3
    assert "GPU_8xH100" in str(check.hint)


def test_what_the_workspace_itself_finds_wrong_has_the_place_of_the_field(
    session: Callable[[], Session], project: Path
) -> None:
    (project / "run.yaml").write_text(
        BASE.replace("gpus: 2", "gpus: 2000") + "env: {base: gpu-6}\nbackend: databricks\n"
    )

    check = {it.id: it for it in session().plan().checks}["workspace_refuses"]

    assert "at most 1024" in check.summary
    assert check.place is not None
    assert check.place.line == 2


def test_a_workspace_without_those_services_is_planned_for_all_the_same(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    for path in ("*/config:validate", "*/compute-options", "*/provisioned-capacities"):
        server.faults.add(
            Fault(pattern=f"* {path}", effect=Effect.STATUS, status_code=404, times=0,
                  body={"error_code": "ENDPOINT_NOT_FOUND", "message": "no such API"}),
            tenant=server.tenants.of_token(token).key,
        )  # fmt: skip

    plan = session().plan()

    assert plan.applyable
    assert not [it for it in plan.checks if str(it.severity) != "info"]


def test_a_plan_without_its_workspace_warns_once(
    session: Callable[[], Session], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_HOST")

    found = [it for it in session().plan().checks if it.id == "no_workspace"]

    assert [str(it.severity) for it in found] == ["warning"]
