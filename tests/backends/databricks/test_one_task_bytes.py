"""A job with one task is sent as it was before jobs had several: to the byte."""

import json
import os
from pathlib import Path

from sgpu_decl.backends.databricks.jobs.documents import settings_of
from sgpu_decl.backends.databricks.jobs.job_settings import describe
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch
from sgpu_decl.model.job import ONE
from sgpu_decl.model.target import Mode
from tests.config.conftest import outcome

GOLDEN = Path(__file__).with_name("golden") / "jobs_of_one_task.json"
TEXT = """\
runs:
  train:
    gpus: 2
    type: A10
    entrypoint: train.py:main
    args: {n: 3}
    timeout: 1h
    env: {base: gpu-6, dependencies: [einops]}
    retry: {max: 1, on: [infra]}
    permissions: [{level: view, group: users}]
    on_finish: {failure: [a@b.c]}
    budget: b
    backend: databricks
jobs:
  of_run: {run: train, schedule: 0 0 2 * * ?, timezone: Europe/Berlin}
  said:
    run: train
    name: "n ${user}"
    description: d
    trigger: {every: 6h}
    on_overlap: queue
    timeout: 2h
    paused: true
    tags: {a: b}
    budget: c
    permissions: [{level: manage, user: u}]
    on_finish: {success: [d@e.f]}
  notebook: {notebook: {path: /Workspace/x}}
  gpu:
    notebook:
      path: /Workspace/x
      type: A10
      base: gpu-4
      dependencies: [einops]
      parameters: {a: b}
      retries: 2
    trigger: {file_arrival: /Volumes/a/b/c/}
    paused: false
  tables: {notebook: {path: /Workspace/x}, trigger: {table_update: [a.b.c]}}
"""


def test_a_job_with_one_task_is_sent_as_ever() -> None:
    loaded, found = outcome(TEXT, "sgpu.yml")
    assert loaded is not None, found
    runs = {run.address.name: run.config for run in loaded.runs}
    sent = {}
    for mode in Mode:
        for job in loaded.jobs:
            staged = {}
            if job.config.run is not None:
                staged[ONE] = StagedLaunch(
                    config=runs[job.config.run],
                    folder="/Workspace/f",
                    experiments="/Workspace/e",
                    code="/Workspace/c.tar.gz",
                    policy="p",
                )
            name = job.address.name
            told = describe(job.config, name, mode, "me@example.com", staged)
            sent[f"{mode} {name}"] = settings_of(told.document, "token")
    text = json.dumps(sent, indent=1) + "\n"
    if os.environ.get("SGPU_REGEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
