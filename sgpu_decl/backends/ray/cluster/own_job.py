"""The job that this process is the driver of, and what the client left for it.

The client leaves values in the cluster's key-value store, as packages of Ray's Jobs API; the jobs
themselves are noted there, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from functools import partial

import ray
from ray.exceptions import RaySystemError, RpcError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PAUSE = 0.5  # seconds between two tries


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


def pop_value(name: str, *, patience: float = 0.0) -> bytes | None:
    """Return a value and delete it; None if there is none, or if the store does not answer for
    `patience` seconds. What cannot be deleted, Ray deletes by its age."""
    key = f"gcs://{name}".encode()
    deadline = time.monotonic() + patience
    value: bytes | None = _answer(partial(_internal_kv_get, key), deadline)
    if value is not None:
        _answer(partial(_internal_kv_del, key), deadline)
    return value


def find_job(token: str) -> dict[str, Any] | None:
    """What Ray has noted of the job of a launch, with the fields of the Jobs API; None if it has
    none. The GCS itself reads this key (`JobInfoStorageClient` in
    `ray/dashboard/modules/job/common.py` and `JobDataKey` in `gcs_job_manager.h`; the same in
    2.49.1 and 2.60).

    Raises:
        RaySystemError, RpcError: the store does not answer.
    """
    key = f"_ray_internal_job_info_{token}".encode()
    value: bytes | None = _internal_kv_get(key, namespace=b"job")
    return dict(json.loads(value)) if value is not None else None


def _answer(call: Callable[[], Any], deadline: float) -> Any:
    """What the store answers; None if it does not, once the deadline is over."""
    while True:
        try:
            return call()
        except (RaySystemError, RpcError):
            if time.monotonic() >= deadline:
                return None
        time.sleep(_PAUSE)
