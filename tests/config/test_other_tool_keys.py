"""The file of another tool names, for each of its keys, the field of ours: once."""

from collections.abc import Callable

import pytest

from sgpu_decl.config.other_tool_keys import OTHER_TOOL_KEYS
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic

Bad = Callable[..., tuple[Diagnostic, ...]]
RUN = "name: train\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\n"
SKYPILOT = """\
name: train
resources: {accelerators: 'A100:8', cloud: aws}
num_nodes: 2
workdir: .
envs: {LR: '0.1'}
setup: pip install x
run: python train.py
"""
AIR = """\
experiment_name: train
compute: {num_accelerators: 8, accelerator_type: GPU_8xH100}
environment: {version: '4'}
env_variables: {LR: '0.1'}
command: python train.py
max_retries: 3
timeout_minutes: 60
"""
DSTACK = """\
name: train
nodes: 2
python: '3.12'
commands: [python train.py]
resources: {gpu: 'A100:8'}
max_duration: 2h
"""
ACCELERATE = """\
name: train
num_processes: 8
num_machines: 1
mixed_precision: bf16
distributed_type: MULTI_GPU
type: A100
script: train.py
"""


BUNDLE_JOB = """\
schedule: {quartz_cron_expression: 0 0 2 * * ?, timezone_id: UTC, pause_status: PAUSED}
quartz_cron_expression: 0 0 2 * * ?
timezone_id: UTC
pause_status: PAUSED
timeout_seconds: 60
max_retries: 1
min_retries: 1
min_retry_interval_millis: 1
email_notifications: {on_failure: [a@b.c]}
webhook_notifications: {on_failure: [{id: x}]}
notification_settings: {}
health: {longer_than: 3h, rules: []}
job_clusters: []
new_cluster: {}
existing_cluster_id: x
environments: []
notebook_task: {}
spark_python_task: {}
sql_task: {}
git_source: {}
task_key: x
depends_on: [{task_key: y}]
run_if: ALL_DONE
queue: {enabled: true}
parameters: [{name: a, default: b}]
tasks: [{task_key: x}]
notify: {failure: [{webhook: x, id: x}], on_failure: [], on_start: [], on_success: []}
trigger: {periodic: {interval: 1, unit: HOURS}, pause_status: PAUSED, table: {}, every: 1h}
run_as: {service_principal_name: x, service_principal: x}
permissions: [{permission_level: CAN_VIEW, group_name: users, level: view, group: users}]
"""
BUNDLE_TASK = """\
task_key: x
depends_on: [{task_key: y}]
run_if: ALL_DONE
notebook_task: {}
spark_python_task: {}
python_wheel_task: {}
environment_key: x
job_cluster_key: x
new_cluster: {}
existing_cluster_id: x
libraries: []
max_retries: 1
min_retries: 1
min_retry_interval_millis: 1
retry_on_timeout: true
disable_auto_optimization: true
timeout_seconds: 60
email_notifications: {}
webhook_notifications: {}
health: {}
after: [{task_key: y}]
"""
BUNDLE_ROOT = """\
bundle: {name: demo}
workspace: {host: 'https://h'}
sync: {include: [x]}
artifacts: {w: {type: whl}}
resources: {jobs: {}}
presets: {jobs_max_concurrent_runs: 1, trigger_pause_status: PAUSED, pipelines_development: true}
permissions: []
"""


def in_block(text: str, head: str) -> str:
    """The keys in a block of a project."""
    last = head.splitlines()[-1]
    indent = last[: len(last) - len(last.lstrip())]
    lines = "".join(f"{indent}{line}\n" for line in text.splitlines())
    runs = "runs: {train: {gpus: 1, type: CPU, command: x}}"
    return f"project: {{name: p}}\n{runs}\n{head}\n{lines}"


@pytest.mark.parametrize(
    "text",
    [
        in_block(BUNDLE_JOB, "jobs:\n  nightly:\n    run: train"),
        in_block(BUNDLE_TASK, "jobs:\n  nightly:\n    tasks:\n      x:\n        run: train"),
        f"{BUNDLE_ROOT}runs: {{train: {{gpus: 1, type: CPU, command: x}}}}\n",
    ],
)
def test_each_word_of_a_bundle_names_ours_once(bad: Bad, text: str) -> None:
    found = [one for one in bad(text) if one.code != "contradiction"]
    lines = [one.place.line for one in found if one.place]
    keys = [at for at, line in enumerate(text.splitlines(), 1) if line.lstrip() in WORDS]
    assert set(keys) <= set(lines), [text.splitlines()[at - 1] for at in set(keys) - set(lines)]
    for one in found:
        hint = one.hint or ""
        assert "known here" not in hint, one
        assert not hint.startswith("see `sgpu explain"), one
    assert len(set(map(str, found))) == len(found)


WORDS = frozenset(f"{BUNDLE_JOB}{BUNDLE_TASK}{BUNDLE_ROOT}".splitlines())


@pytest.mark.parametrize("text", [SKYPILOT, AIR, DSTACK, ACCELERATE])
def test_a_file_of_another_tool_has_one_error_for_each_of_its_keys(bad: Bad, text: str) -> None:
    found = bad(text)
    assert {one.code for one in found} == {"unknown_key"}
    keys = {line.partition(":")[0] for line in text.splitlines()}
    assert len(found) == len(keys - RunConfig.model_fields.keys())
    assert all(one.hint and "known here" not in one.hint for one in found)


def test_the_table_names_fields_that_there_are() -> None:
    fields = RunConfig.model_fields.keys()
    assert not OTHER_TOOL_KEYS.keys() & fields
    for key, ours in OTHER_TOOL_KEYS.items():
        assert set(ours.fields) <= fields, key
        assert ours.hint, key


def test_a_key_of_another_tool_is_known_to_targets_and_options_too(bad: Bad) -> None:
    (found,) = bad(RUN + "targets: {prod: {num_nodes: 2}}\n")
    assert found.hint == OTHER_TOOL_KEYS["num_nodes"].hint
    (found,) = bad(RUN, sets=[("resources.accelerators", "A100")])
    assert found.hint == OTHER_TOOL_KEYS["resources"].hint


def test_at_the_root_of_a_project_it_is_told_where_ours_stands(bad: Bad) -> None:
    run = RUN.partition("\n")[2].strip().replace("\n", ", ")
    project = f"project: {{name: p}}\nruns: {{train: {{{run}}}}}\n"
    for text in ("num_nodes: 2\n", "targets: {prod: {num_nodes: 2}}\n"):
        (found,) = bad(project + text)
        assert found.hint == f"in `runs.NAME`, {OTHER_TOOL_KEYS['num_nodes'].hint}"
    (found,) = bad(project + "targets: {prod: {runs: {train: {num_nodes: 2}}}}\n")
    assert found.hint == OTHER_TOOL_KEYS["num_nodes"].hint


def test_variables_that_stand_in_env_itself_are_told_where_they_belong(bad: Bad) -> None:
    (found,) = bad(RUN + "env: {NCCL_DEBUG: WARN}\n")
    assert "write `variables: {NCCL_DEBUG: …}` here" in (found.hint or "")
