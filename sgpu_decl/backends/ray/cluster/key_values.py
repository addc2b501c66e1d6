"""The cluster's key-value store: values that the client leaves there, as packages of Ray's Jobs
API, and the jobs themselves."""

from __future__ import annotations

import json
import time
from functools import partial

from ray.exceptions import RaySystemError, RpcError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["find_job", "pop_value"]

_PAUSE = 0.5  # seconds between two tries


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
