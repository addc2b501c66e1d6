"""What a plan says of runs that the platform or the workspace would refuse."""

from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from tests.backends.databricks.bench import DatabricksBench

BASE = "name: hello\ngpus: 2\ntype: A10\nentrypoint: train.py:main\nargs: {n: 3}\n"


def checks(bench: DatabricksBench, more: str, gpus: str = "") -> dict[str, Diagnostic]:
    """Those of the smallest run with more fields, and with other `gpus` and `type` if given."""
    base = BASE.replace("gpus: 2\ntype: A10\n", gpus) if gpus else BASE
    (bench.project / "run.yaml").write_text(f"{base}backend: databricks\n{more}")
    return bench.checks()


def line(check: Diagnostic) -> int | None:
    return check.place.line if check.place else None


@pytest.mark.parametrize(
    ("more", "code", "severity", "at", "hint"),
    [
        ("gpus: 2\ntype: CPU\n", "no_such_machines", "error", 3, "`type: A10`"),
        ("gpus: 2\ntype: T4\n", "no_such_machines", "error", 3, "`type: A10`, `type: H100`"),
        ("gpus: 8\ntype: H200\n", "no_such_machines", "error", 3, "`type: GPU_8xH200`"),
        ("gpus: 8\ntype: GPU_4xH200\n", "no_such_machines", "error", 3, "`type: A10`"),
        ("gpus: 16\ntype: GPU_8xH200\n", "unknown_accelerator", "warning", 3, "nothing has"),
        ("gpus: 4\ntype: GPU_4xH100\n", "no_such_machines", "error", 3, "`type: H100`"),
        ("gpus: 12\ntype: H100\n", "bad_gpu_count", "error", 2, "`gpus: 8` or `gpus: 16`"),
        ("gpus: 1\ntype: B300\n", "bad_gpu_count", "error", 2, "use `gpus: 8`"),
        ("gpus: 2\ntype: GPU_1xH100\n", "bad_gpu_count", "error", 2, "or `gpus: 1`"),
        ("gpus: 2\ntype: GPU\n", "gpus_here", "info", 3, "name the type"),
        ("timeout: 8d\n", "timeout_too_long", "error", 7, "checkpoint"),
        ("max_parallel: 2\n", "unsupported_field", "error", 7, "max_parallel: null"),
        ("priority: high\npool: p\n", "unknown_priority", "warning", 7, "BEST_EFFORT"),
        ("priority: critical\npool: p\n", "unknown_priority", "warning", 7, "`NORMAL`"),
        ("env: {base: gpu-9}\n", "unknown_base", "warning", 7, "`gpu-6`"),
        ("permissions: [{level: CAN_VEIW, user: a@b.c}]\n", "unknown_level", "warning", 7,
         "`CAN_VIEW`"),
        ("env: {base: ai-4}\n", "base_not_for_tasks", "error", 7, "use `gpu-4`"),
        ("env: {base: ai-4}\nbudget: teem\n", "unknown_policy", "error", 8, "one of its policies"),
        ("pool: nope\n", "unknown_pool", "error", 7, "pool: on_demand"),
        ("permissions: [{level: view, group: nobody}]\n", "unknown_group", "warning", 7,
         "its name"),
        ("gpus: 8\ntype: B300\nenv: {base: gpu-5}\n", "base_without_gpu", "error", 4,
         "`base: gpu-6`"),
        ("priority: normal\n", "priority_without_pool", "error", 7, "pool"),
        ("env:\n  base: gpu-6\n  secrets: {HF: env:HF}\n", "secret_not_remote", "error", 9,
         "databricks secrets put-secret"),
        ("env: {variables: {DATA: /dbfs/mnt/x}}\n", "dbfs_path", "error", 7, "/Volumes"),
        ("image: a.b.c:1\nenv: {base: gpu-6}\n", "image_and_environment", "error", 7, "keep one"),
        ("mlflow: {tracking_uri: 'http://x'}\n", "unsupported_field", "error", 7, "tracking_uri"),
        ("mlflow: {enabled: false}\n", "unsupported_field", "error", 7, "`true` in the target"),
        ("mlflow: {system_metrics: false}\n", "unsupported_field", "error", 7, "system_metrics"),
        ("mlflow: {experiment: my exp (b)}\n", "experiment_renamed", "warning", 7, "such a name"),
        ("env: {variables: {MLFLOW_EXPERIMENT_NAME: a.b}}\n", "experiment_renamed", "warning", 7,
         "such a name"),
        ("retry: {max: 1, backoff: 5s}\n", "retry_cost", "info", 7, "`retry.backoff: 5s` is for"),
        ("mlflow: {artifact_location: 'file:/x'}\n", "bad_artifact_location", "error", 7,
         "/Volumes"),
        ("mlflow: {artifact_location: here}\n", "bad_artifact_location", "error", 7, "s3://"),
        ("code: {link: [data]}\n", "unsupported_field", "error", 7, "volume"),
        ("env: {base: gpu-4, python: '3.9'}\n", "base_python", "error", 7, "another base"),
        ("grace: 1s\n", "default_base", "info", 6, "env.base"),
        ("ray: {dashboard: true}\n", "ray_dashboard_unseen", "warning", 7, "`ray.util.state`"),
        ("budget: teem\n", "unknown_policy", "error", 7, "one of its policies"),
        ("env:\n  base: gpu-6\n  secrets: {HF: 'databricks:ml/hf'}\n", "secret_missing", "error", 9,
         "create-scope ml`, then `databricks secrets put-secret ml hf`"),
    ],
)  # fmt: skip
def test_a_config_that_does_not_go_with_the_platform(
    bench: DatabricksBench, more: str, code: str, severity: str, at: int, hint: str
) -> None:
    found = checks(bench, "", more) if more.startswith("gpus") else checks(bench, more)

    assert (str(found[code].severity), line(found[code])) == (severity, at)
    assert hint in str(found[code].hint)


def test_an_experiment_that_is_exported_here_does_not_count_in_silence(
    bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "exported")
    check = checks(bench, "env: {base: gpu-6}\n")["experiment_not_exported"]
    assert check.hint == "write `mlflow: {experiment: exported}`"
    assert "experiment_not_exported" not in checks(bench, "mlflow: {experiment: e}\n")


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
    bench: DatabricksBench, source: str, code: str, severity: str
) -> None:
    bench.code(f"{source}def main(n):\n    pass\n")

    check = checks(bench, "env: {base: gpu-6}\n")[code]

    assert str(check.severity) == severity
    assert check.place is not None
    assert check.place.file.endswith("train.py")


def test_machines_that_the_workspace_does_not_offer_and_that_an_old_base_lacks(
    bench: DatabricksBench,
) -> None:
    found = checks(bench, "", "gpus: 8\ntype: B300\n")

    check = found["accelerator_not_offered"]
    assert ("GPU_8xB300" in check.summary, line(check)) == (True, 3)
    assert "GPU_8xH100" in str(check.hint)
    assert "`gpu-6`" in found["default_base"].summary, "they have a later one by themselves"
    assert "base_without_gpu" not in found


def test_what_the_workspace_itself_finds_wrong_has_the_place_of_the_field(
    bench: DatabricksBench,
) -> None:
    check = checks(bench, "env: {base: gpu-6}\n", "gpus: 2000\ntype: A10\n")["workspace_refuses"]

    assert ("at most 1024" in check.summary, line(check)) == (True, 2)


def test_a_workspace_without_those_services_is_planned_for_all_the_same(
    bench: DatabricksBench,
) -> None:
    for path in ("*/config:validate", "*/compute-options", "*/provisioned-capacities"):
        bench.refuse(f"* {path}", 404, "ENDPOINT_NOT_FOUND", "no such API", times=0)

    plan = bench.plan()

    assert plan.applyable
    assert not [check for check in plan.checks if str(check.severity) != "info"]


def test_a_plan_without_its_workspace_warns_once(
    bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_HOST")

    (found,) = [check for check in bench.plan().checks if check.code == "no_workspace"]

    assert str(found.severity) == "warning"
    assert "a launch there would fail" in found.summary


UNKNOWN_FIELD = {"errors": [{"path": "task.shape", "message": "no such shape"}]}
KNOWN_FIELD = {"errors": [{"path": "deployments[0].compute.accelerator_count", "message": "no"}]}
NOT_UNDERSTOOD = {"error_code": "MALFORMED_REQUEST", "message": "what is `task`?"}


@pytest.mark.parametrize(
    ("status", "answer", "severity", "words"),
    [
        (200, UNKNOWN_FIELD, "warning", "may refuse it: no such shape (`task.shape`)"),
        (200, KNOWN_FIELD, "error", "would refuse it: no"),
        (400, NOT_UNDERSTOOD, "warning", "what is `task`?"),
    ],
)
def test_an_answer_of_the_validation_blocks_only_where_it_names_a_field(
    bench: DatabricksBench, status: int, answer: dict[str, Any], severity: str, words: str
) -> None:
    bench.fault("POST */config:validate", status_code=status, body=answer)

    plan = bench.plan()

    (check,) = [item for item in plan.checks if item.code == "workspace_refuses"]
    assert (check.severity, plan.applyable) == (severity, severity == "warning")
    assert words in check.summary


@pytest.mark.parametrize("refused", [False, True])
def test_the_validation_is_asked_once_about_runs_that_differ_in_their_names(
    bench: DatabricksBench, *, refused: bool
) -> None:
    bench.declare(more="matrix: {timeout: [1h, 2h], n: [1, 2, 3]}\ntimeout: ${matrix.timeout}\n")
    if refused:
        bench.fault("POST */config:validate", status_code=200, body=KNOWN_FIELD, times=0)
    bench.forget_requests()

    plan = bench.plan()

    assert len(plan.changes) == 6
    assert len(bench.requests("config:validate")) == 2
    found = [item for item in plan.checks if item.code == "workspace_refuses"]
    assert len(found) == refused  # at the place of all six


@pytest.mark.parametrize("staging", ["", "/Workspace/Shared/team", "/Volumes/a/b/c"])
def test_the_validation_is_asked_with_a_path_where_the_command_can_lie(
    bench: DatabricksBench, staging: str
) -> None:
    if staging:
        block = f"backend: {{kind: databricks, staging: {staging}}}"
        bench.declare("backend: databricks", block)
    bench.forget_requests()

    bench.plan()

    (asked,) = [item.json for item in bench.requests("config:validate")]
    path = asked["task"]["deployments"][0]["command_path"]
    home = f"/Workspace{bench.tenant.home}/.sgpu"
    above = {"": f"{home}/runs", "/Workspace/Shared/team": f"{staging}/runs"}
    assert path == f"{above.get(staging, f'{home}/commands')}/hello/command.sh"


@pytest.mark.parametrize("pool", ["on_demand", "reserved", None])
def test_the_validation_is_asked_what_is_submitted(
    bench: DatabricksBench, pool: str | None
) -> None:
    more = "timeout: 1h\nretry: {max: 1, on: [infra]}\n"
    bench.declare(more=more + (f"pool: {pool}\n" if pool else ""))
    bench.forget_requests()
    run = bench.launch()
    run.session.runs.cancel(run.ref)

    (validated,) = [item.json for item in bench.requests("config:validate")]
    (submitted,) = [item.json for item in bench.requests("/runs/submit")]

    assert isinstance(validated, dict)
    assert isinstance(submitted, dict)
    (task,) = submitted["tasks"]
    found = validated["task"]
    for one in (found, task["ai_runtime_task"]):
        one["deployments"][0].pop("command_path")  # see above
        one.pop("mlflow_run")  # it names the attempt
    assert task["ai_runtime_task"].pop("code_source_path")  # made when it is staged
    assert found == task["ai_runtime_task"]
    assert validated["environment"] == submitted["environments"][0]["spec"]
    options = validated["run_options"]
    assert options["max_retries"] == task["max_retries"]
    assert options["timeout_minutes"] * 60 == submitted["timeout_seconds"]
    run.ended()
