"""A bundle with a project of ours in it."""

from pathlib import Path

import pytest

from tests.bundles.cli_standin import CliStandin
from tests.support import require

require("databricks.bundles")

BUNDLE = """\
bundle: {name: shop}
variables:
  lr: {default: 0.1}
  of_the_team: {default: [1, 2]}
python:
  venv_path: .venv
  resources: ["sgpu_decl.bundles:load_resources"]
  mutators: ["sgpu_decl.bundles:sgpu_tasks"]
sync: {include: ["sgpu/**"]}
resources:
  jobs:
    etl:
      name: etl
      tasks:
        - task_key: prep
          notebook_task: {notebook_path: /Workspace/Shared/prep}
        - task_key: gpu
          description: "sgpu: train"
          depends_on: [{task_key: prep}]
targets:
  dev: {mode: development}
  prod: {mode: production}
"""
PROJECT = """\
project: {name: shop}
variables:
  lr: {default: 1.0}
runs:
  train:
    gpus: 2
    type: A10
    code: {root: src}
    entrypoint: train.py:main
    args: {lr: "${var.lr}"}
    grace: 500ms
    timeout: 1h
    env: {base: gpu-6}
    backend: databricks
jobs:
  nightly:
    name: nightly of ${user}
    schedule: 0 0 2 * * ?
    parameters: {day: "2026-11-01"}
    permissions: [{level: view, group: users}]
    lifecycle: {prevent_destroy: true}
    tasks:
      prepare: {python: prepare.py, args: [--day, "${job.parameters.day}"]}
      train: {run: train, after: [prepare]}
"""
CODE = """\
import os
from pathlib import Path
def main(lr):
    rank = int(os.environ["RANK"])
    print("hello from", rank)
    Path(os.environ["SGPU_OUTPUT_DIR"], f"model-{rank}.txt").write_text(str(lr))
    return {"rank": rank, "lr": lr}
"""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliStandin:
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("HOST", "TOKEN", "CONFIG_PROFILE"):
        monkeypatch.delenv(f"DATABRICKS_{name}", raising=False)
    folder = tmp_path / "bundle"
    (folder / "src").mkdir(parents=True)
    for name, text in {
        "databricks.yml": BUNDLE,
        "sgpu.yml": PROJECT,
        "src/train.py": CODE,
        "prepare.py": "import sys\nprint('prepared', sys.argv[1:])\n",
    }.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return CliStandin(folder, tmp_path / "io")
