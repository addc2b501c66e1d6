"""The readable file of a launch folder, which `air get` shows."""

from pathlib import Path
from typing import Any

import yaml
from databricks.sdk import WorkspaceClient

from tests.backends.databricks.bench import DatabricksBench, Launched

MORE = """\
parameters: {lr: 1e-3, layers: [1, 2]}
timeout: 90m
retry: {max: 1, on: [infra]}
tags: {team: vision}
"""


def test_a_launch_folder_says_what_ran_in_the_words_of_air(
    bench: DatabricksBench, tenant: Path
) -> None:
    client = WorkspaceClient()
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "hf", string_value="s3cr3t-value")
    secrets = "{base: gpu-6, variables: {LR: '1'}, secrets: {HF: 'databricks:ml/hf'}}"
    bench.declare("{base: gpu-6}", secrets, MORE)
    opened = bench.open()

    plan = opened.plan()
    Launched(opened, *opened.apply(plan).launched).cancelled()

    (file,) = tenant.rglob("training_config.yaml")
    assert file.with_name("command.sh").is_file(), "beside the command, where `air` looks for it"
    assert "s3cr3t" not in file.read_text()
    assert plan.plan.changes[0].launch
    told: Any = yaml.safe_load(file.read_text())
    assert told.pop("sgpu") == {
        "run": "hello#1",
        "entrypoint": "train.py:main",
        "args": {"n": 3},
        "code": plan.plan.changes[0].launch.inputs.code_digest,
    }
    assert told == {
        "experiment_name": "hello",
        "mlflow_run_name": "hello#1",
        "compute": {"num_accelerators": 2, "accelerator_type": "GPU_1xA10"},
        "environment": {"version": "6"},
        "env_variables": {"LR": "1"},
        "secrets": {"HF": "ml/hf"},
        "parameters": {"lr": 0.001, "layers": [1, 2]},
        "max_retries": 1,
        "timeout_minutes": 90,
    }
