"""From a run's config to the body of `runs/submit`."""

import json
from typing import Any

import pytest

from sgpu_decl.backends.databricks.launching.joined_runs import (
    joined_submission,
    joined_token,
    read_submission,
)
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch, submit_request
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from tests.backends.launches import launching_of

REF = AttemptRef(Address.run("train", "lr=0.1"), 8)


def asked(
    *, placement: str | None = None, staged: dict[str, str] | None = None, **said: Any
) -> dict[str, Any]:
    spec = {"gpus": 2, "type": "A10", "entrypoint": "a.py", **said}
    request = launching_of(
        ref=REF,
        token="sgpu1-abc",
        spec=json.dumps(spec),
        code_digest="sha256:c",
        placement=placement,
    )
    names = staged or {
        "folder": "/Workspace/x/8-sgpu1-ab",
        "experiments": "/Workspace/Users/me",
        "code": "/Workspace/o/c.tar.gz",
    }
    launch = StagedLaunch(config=request.config, placement=placement, **names)
    return submit_request(launch, ref=REF, token=request.record.token)


def test_the_smallest_run() -> None:
    assert asked() == {
        "run_name": 'train["lr=0.1"]#8',
        "idempotency_token": "sgpu1-abc",
        "timeout_seconds": 604800,
        "environments": [{"environment_key": "default", "spec": {"environment_version": "4"}}],
        "tasks": [
            {
                "task_key": "train",
                "run_if": "ALL_SUCCESS",
                "environment_key": "default",
                "max_retries": 0,
                "ai_runtime_task": {
                    "experiment": "train",
                    "mlflow_experiment_directory": "/Workspace/Users/me",
                    "mlflow_run": f"{REF.address.folder.replace('@', '-')}-8",
                    "code_source_path": "/Workspace/o/c.tar.gz",
                    "deployments": [
                        {
                            "command_path": "/Workspace/x/8-sgpu1-ab/command.sh",
                            "compute": {"accelerator_type": "GPU_1xA10", "accelerator_count": 2},
                        }
                    ],
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({}, 7 * 86400),
        ({"timeout": "1h"}, 3600 + 86400 + 600),
        ({"timeout": "1h", "startup_timeout": "3d"}, 3600 + 3 * 86400 + 600),
        ({"timeout": "1h", "startup_timeout": "20m"}, 3600 + 1200 + 600),
        ({"timeout": "1h", "retry": {"max": 1}}, 2 * (3600 + 86400 + 600)),
        ({"timeout": "6d12h"}, 7 * 86400),
    ],
)
def test_the_platforms_limit_has_time_for_its_queue(said: dict[str, Any], seconds: int) -> None:
    assert asked(**said)["timeout_seconds"] == seconds


def test_a_run_with_everything() -> None:
    body = asked(
        placement="p1",
        staged={
            "folder": "/Workspace/Users/me/.sgpu/runs/1/big/8",
            "experiments": "/Workspace/Users/me",
            "policy": "p-1",
        },
        gpus=16, type="H100", timeout="90m", retry={"max": 2, "on": ["infra"]},
        priority="best_effort", env={"base": "ai-5", "dependencies": ["lightning"]},
        mlflow={"experiment": "/Shared/deep/exp", "run_name": "my run",
                "artifact_location": "/Volumes/a/b/c/runs"},
        permissions=[{"level": "run", "group": "ml"}, {"level": "manage", "user": "a@b.c"}],
        on_finish={"failure": ["a@b.c"]},
    )  # fmt: skip

    (task,) = body["tasks"]
    ai = task["ai_runtime_task"]
    assert ai["mlflow_artifact_location"] == "dbfs:/Volumes/a/b/c/runs"
    assert body["timeout_seconds"] == 3 * (5400 + 24 * 3600 + 600)
    assert body["budget_policy_id"] == "p-1"
    assert body["email_notifications"] == {"on_failure": ["a@b.c"]}
    assert body["access_control_list"] == [
        {"group_name": "ml", "permission_level": "CAN_MANAGE_RUN"},
        {"user_name": "a@b.c", "permission_level": "CAN_MANAGE"},
    ]
    assert body["environments"][0]["spec"] == {
        "base_environment": "workspace-base-environments/databricks_ai_v5",
        "dependencies": ["lightning"],
    }
    assert task["max_retries"] == 2
    assert (ai["experiment"], ai["mlflow_experiment_directory"]) == (
        "exp",
        "/Workspace/Shared/deep",
    )
    assert (ai["mlflow_run"], ai["priority_class"]) == ("my-run", "BEST_EFFORT")
    assert "code_source_path" not in ai
    assert ai["deployments"][0]["compute"] == {
        "accelerator_type": "GPU_8xH100", "accelerator_count": 16, "provisioned_capacity_id": "p1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "kind", "accelerator"),
    [
        (1, "A10", "GPU_1xA10"),
        (3, "A10", "GPU_1xA10"),
        (1, "H100", "GPU_1xH100"),
        (8, "H100", "GPU_8xH100"),
        (24, "H100", "GPU_8xH100"),
        (8, "B300", "GPU_8xB300"),
        (16, "H200", "GPU_8xH200"),  # the name of the node is no part of a spec
        (4, "L40S", "GPU_4xL40S"),
    ],
)
def test_the_machines_for_a_number_of_gpus(gpus: int, kind: str, accelerator: str) -> None:
    (task,) = asked(gpus=gpus, type=kind)["tasks"]

    assert task["ai_runtime_task"]["deployments"][0]["compute"] == {
        "accelerator_type": accelerator,
        "accelerator_count": gpus,
    }


def test_an_image_comes_with_an_environment_too() -> None:
    body = asked(image="cat.schema.img:1")

    (task,) = body["tasks"]
    assert task["ai_runtime_task"]["unity_catalog_image_path"] == "cat.schema.img:1"
    assert task["environment_key"] == "default"
    assert body["environments"] == asked()["environments"]


def test_ranks_without_gpus_have_no_machines() -> None:
    with pytest.raises(BackendError) as caught:
        asked(type="CPU")

    assert caught.value.code == "no_such_machines"


def joined(*specs: dict[str, Any]) -> dict[str, Any]:
    """The request for runs of which each comes after the one before it."""
    refs = [AttemptRef(Address.run(f"r{at}"), 1) for at in range(len(specs))]
    requests = [
        launching_of(
            ref=ref,
            token=f"sgpu1-{ref.address.name}",
            spec=json.dumps({"gpus": 1, "type": "A10", "entrypoint": "a.py", **spec}),
            after=refs[max(0, at - 1) : at],
        )
        for at, (ref, spec) in enumerate(zip(refs, specs, strict=True))
    ]
    staged = [
        StagedLaunch(
            config=request.config,
            folder=f"/Workspace/x/{request.ref.address.name}",
            experiments="/Workspace/Users/me",
        )
        for request in requests
    ]
    submission = joined_submission(requests, staged, staged[0].folder)
    assert submission.path == "/Workspace/x/r0/submission.json"
    assert read_submission(submission.path, submission.to_bytes()) == submission
    assert read_submission(submission.path, b"{}") is None
    assert submission.token == joined_token([request.record for request in requests])
    assert submission.tasks["sgpu1-r1"] == {"task": "2-r1", "after": {"1-r0": "r0#1"}}
    return dict(submission.body)


def test_runs_in_order_are_tasks_of_one_run() -> None:
    body = joined(
        {
            "timeout": "1h",
            "retry": {"max": 2, "on": ["infra"]},
            "on_finish": {"success": ["a@b.c"]},
        },
        {"env": {"base": "ai-5"}},
        {"env": {"base": "ai-5"}},
    )

    first, second, third = body["tasks"]
    assert body["run_name"] == "r0#1, r1#1, r2#1"
    assert len(body["idempotency_token"]) <= 64
    # 0 or nothing "means no timeout" (`JobsAPI.submit`): one waits for the other.
    assert "timeout_seconds" not in body
    assert first["timeout_seconds"] == 3600 + 86400 + 600
    assert (first["max_retries"], first["task_key"]) == (2, "1-r0")
    assert first["email_notifications"] == {"on_success": ["a@b.c"]}
    assert "depends_on" not in first
    assert second["depends_on"] == [{"task_key": "1-r0"}]
    assert third["depends_on"] == [{"task_key": "2-r1"}]
    assert [task["environment_key"] for task in body["tasks"]] == [
        "environment-1",
        "environment-2",
        "environment-2",
    ]
    assert [one["environment_key"] for one in body["environments"]] == [
        "environment-1",
        "environment-2",
    ]
    paths = [task["ai_runtime_task"]["deployments"][0]["command_path"] for task in body["tasks"]]
    assert paths == [f"/Workspace/x/r{at}/command.sh" for at in range(3)]


def test_other_launches_together_are_another_run() -> None:
    records = [
        launching_of(ref=AttemptRef(Address.run(name), 1), token=name).record for name in "abc"
    ]
    tokens = {joined_token(records), joined_token(records[:2]), joined_token(records[1:])}
    assert len(tokens) == 3
