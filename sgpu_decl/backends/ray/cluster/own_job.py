"""The job that this process is the driver of."""

from __future__ import annotations

import contextlib
import json
import os
import shutil

import ray

__all__ = ["empty_folder", "join_cluster"]


def empty_folder(folder: str) -> None:
    """Delete the content of the job's working folder. The folder itself stays: the process of Ray
    above this one works in it, too. Ray deletes it once such folders have 10 GB."""
    os.chdir("/")
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry)


def join_cluster() -> None:
    """Join the cluster as the driver of the job, but without its working folder: nodes get what
    they need from this process."""
    name = "RAY_JOB_CONFIG_JSON_ENV_VAR"
    config = json.loads(os.environ.get(name, "{}"))
    os.environ[name] = json.dumps({**config, "runtime_env": {}})
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
