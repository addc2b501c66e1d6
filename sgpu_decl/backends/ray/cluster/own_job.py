"""The job that this process is the driver of."""

from __future__ import annotations

import json
import os

import ray

__all__ = ["join_cluster"]


def join_cluster() -> None:
    """Join the cluster as the driver of the job, but without its working folder: nodes get what
    they need from this process."""
    name = "RAY_JOB_CONFIG_JSON_ENV_VAR"
    config = json.loads(os.environ.get(name, "{}"))
    os.environ[name] = json.dumps({**config, "runtime_env": {}})
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
