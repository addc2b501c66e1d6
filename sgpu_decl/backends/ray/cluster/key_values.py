"""Values that the client leaves in the cluster's key-value store, as packages of Ray's Jobs API."""

from __future__ import annotations

import time
from functools import partial

from ray.exceptions import RaySystemError, RpcError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["pop_value"]

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


def _answer(call: Callable[[], Any], deadline: float) -> Any:
    """What the store answers; None if it does not, once the deadline is over."""
    while True:
        try:
            return call()
        except (RaySystemError, RpcError):
            if time.monotonic() >= deadline:
                return None
        time.sleep(_PAUSE)
