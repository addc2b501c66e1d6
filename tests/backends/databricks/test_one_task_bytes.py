"""A job with one task is sent as it was before jobs had several: to the byte."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


SEVERAL = """\
project: {name: p}
defaults:
  run: {gpus: 1, type: A10, command: x, permissions: [{level: view, group: ops}]}
runs: {one: {}, other: {}}
jobs:
  nightly: {tasks: {a: {run: one}, b: {run: other, after: [a]}}}
  open: {permissions: [], tasks: {a: {run: one}}}
"""


def document(text: str, job: str, **policies: str | None) -> Mapping[str, Any]:
    loaded, found = outcome(text, "sgpu.yml")
    assert loaded is not None, found
    runs = {run.address.name: run.config for run in loaded.runs}
    (config,) = (one.config for one in loaded.jobs if one.address.name == job)
    staged = {
        key: StagedLaunch(config=runs[task.run or ""], folder="/f", experiments="/e", policy=policy)
        for (key, task), policy in zip(config.tasks.items(), policies.values(), strict=False)
    }
    return describe(config, job, Mode.PRODUCTION, "", staged).document


def test_what_all_runs_of_a_job_say_is_said_of_the_job() -> None:
    told = document(SEVERAL, "nightly", one="p", other="p")
    assert told["budget_policy_id"] == "p"
    assert told["permissions"] == {"group_name": {"ops": "CAN_VIEW"}}
    assert "budget_policy_id" not in document(SEVERAL, "nightly", one="p", other=None)
    others = SEVERAL.replace("one: {}", "one: {permissions: [{level: view, group: all}]}")
    assert "permissions" not in document(others, "nightly", one="p", other="p")
    assert "permissions" not in document(SEVERAL, "open", one="p")
    of_job = "  job: {budget: q, permissions: [{level: run, user: u}]}"
    own = SEVERAL.replace("defaults:", f"defaults:\n{of_job}")
    told = document(own, "nightly", one="p", other="p")
    assert told["budget_policy_id"] == "q"
    assert told["permissions"] == {"user_name": {"u": "CAN_MANAGE_RUN"}}


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
